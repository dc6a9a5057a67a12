//! Parsing of policy specifications such as `saath:d=4:lcof=off`.

use std::fmt::Display;
use std::str::FromStr;

use crate::suggestion::did_you_mean;

/// Why a policy could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// No policy has this name.
    #[error("unknown policy `{name}`; expected one of {known}{}", did_you_mean(.name, .known.split(", ")))]
    UnknownPolicy {
        /// The name in the specification.
        name: String,
        /// The known names.
        known: String,
    },
    /// The policy does not have this parameter.
    #[error(
        "policy `{policy}` has no parameter `{key}`; expected {known}{}",
        did_you_mean(.key, .known.trim_start_matches("one of ").split(", "))
    )]
    UnknownKey {
        /// Name of the policy.
        policy: String,
        /// The key in the specification.
        key: String,
        /// The known keys.
        known: String,
    },
    /// The parameter has an effect only with another one.
    #[error("policy `{policy}`: `{key}` has an effect only with `{required}`; expected both")]
    HasNoEffect {
        /// Name of the policy.
        policy: String,
        /// The key in the specification.
        key: String,
        /// The value in the specification.
        value: String,
        /// The other parameter with its value.
        required: String,
    },
    /// A part of the specification is not `key=value`.
    #[error("policy `{policy}`: `{part}` is not a parameter; expected `key=value`")]
    MissingValue {
        /// Name of the policy.
        policy: String,
        /// The malformed part.
        part: String,
    },
    /// The policy needs more than the place where it is used can give.
    #[error("policy `{name}` cannot {purpose}; expected {expected}")]
    Unsuitable {
        /// Name of the policy.
        name: String,
        /// A verb phrase: the use that the policy does not fit.
        purpose: &'static str,
        /// The policies that can.
        expected: String,
    },
    /// The policy refuses its parameters together, or cannot start.
    #[error("policy `{policy}`: {reason}")]
    Refused {
        /// Name of the policy.
        policy: String,
        /// Why.
        reason: String,
    },
    /// The value is malformed or out of range.
    #[error("policy `{policy}`: `{key}={value}` is invalid; expected {expected}")]
    InvalidValue {
        /// Name of the policy.
        policy: String,
        /// Name of the parameter.
        key: String,
        /// The value in the specification.
        value: String,
        /// The accepted values.
        expected: String,
    },
}

/// The name and the parameters of a policy specification.
#[derive(Debug, Clone)]
pub struct Params {
    name: String,
    given_params: Vec<(String, String)>,
    known_keys: Vec<&'static str>,
}

impl Params {
    /// Splits `name:key=value:key=value`.
    ///
    /// # Errors
    /// [`ParamsError::MissingValue`] if a part does not contain `=`.
    pub fn parse(spec: &str) -> Result<Params, ParamsError> {
        let mut parts = spec.split(':');
        let name = parts.next().unwrap_or_default().trim().to_owned();
        let mut given_params = Vec::new();
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| ParamsError::MissingValue { policy: name.clone(), part: part.to_owned() })?;
            given_params.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(Params { name, given_params, known_keys: Vec::new() })
    }

    /// Name of the policy.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn value_error(&self, key: &str, value: &str, expected: &str) -> ParamsError {
        ParamsError::InvalidValue {
            policy: self.name.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        }
    }

    fn take_text(&mut self, key: &'static str) -> Option<String> {
        self.known_keys.push(key);
        let at = self.given_params.iter().position(|(k, _)| k == key)?;
        Some(self.given_params.remove(at).1)
    }

    /// Rejects `key`, since it has an effect only with the parameter `required`, which is absent.
    ///
    /// # Errors
    /// [`ParamsError::HasNoEffect`] if the specification contains `key`.
    pub fn reject_without(&mut self, key: &'static str, required: &str) -> Result<(), ParamsError> {
        self.take_text(key).map_or(Ok(()), |value| {
            let (policy, key) = (self.name.clone(), key.to_owned());
            Err(ParamsError::HasNoEffect { policy, key, value, required: required.to_owned() })
        })
    }

    /// Takes all parameters that are left, as key and value, for a policy whose parameters are not known to the compiler. The policy
    /// refuses unknown keys itself.
    pub fn take_rest(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.given_params)
    }

    /// Takes the value of `key`, or `default` if the specification does not contain `key`.
    ///
    /// # Errors
    /// [`ParamsError::InvalidValue`] if the value cannot be parsed or `is_valid` returns false.
    pub fn take_value<T: FromStr + Display>(
        &mut self,
        key: &'static str,
        default: T,
        is_valid: impl Fn(&T) -> bool,
        expected: &str,
    ) -> Result<T, ParamsError> {
        match self.take_text(key) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(value) if is_valid(&value) => Ok(value),
                _ => Err(self.value_error(key, &text, expected)),
            },
        }
    }

    /// Takes a list of numbers separated by `/`, if the specification contains `key`.
    ///
    /// # Errors
    /// [`ParamsError::InvalidValue`] if a number cannot be parsed or `is_valid` returns false.
    pub fn take_list(
        &mut self,
        key: &'static str,
        is_valid: impl Fn(f64) -> bool,
        expected: &str,
    ) -> Result<Option<Vec<f64>>, ParamsError> {
        let Some(text) = self.take_text(key) else { return Ok(None) };
        let numbers: Option<Vec<f64>> =
            text.split('/').map(|part| part.trim().parse().ok().filter(|number| is_valid(*number))).collect();
        numbers.map(Some).ok_or_else(|| self.value_error(key, &text, expected))
    }

    /// Takes `on` or `off`.
    ///
    /// # Errors
    /// [`ParamsError::InvalidValue`] for any other value.
    pub fn take_switch(&mut self, key: &'static str, default: bool) -> Result<bool, ParamsError> {
        match self.take_text(key).as_deref() {
            None => Ok(default),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(text) => Err(self.value_error(key, text, "`on` or `off`")),
        }
    }

    /// Takes one of the `words`. The first word is the default.
    ///
    /// # Errors
    /// [`ParamsError::InvalidValue`] for any other word.
    pub fn take_choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Result<T, ParamsError> {
        match self.take_text(key) {
            None => Ok(words[0].1),
            Some(text) => match words.iter().find(|(word, _)| *word == text) {
                Some((_, value)) => Ok(*value),
                None => {
                    let words: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
                    Err(self.value_error(key, &text, &words.join(" or ")))
                }
            },
        }
    }

    /// Rejects the parameters that the policy did not take.
    ///
    /// # Errors
    /// [`ParamsError::UnknownKey`] for the first unknown parameter, or [`ParamsError::InvalidValue`] if a parameter is given
    /// twice.
    pub fn reject_unknown(self) -> Result<(), ParamsError> {
        match self.given_params.first() {
            None => Ok(()),
            Some((key, value)) if self.known_keys.contains(&key.as_str()) => {
                Err(self.value_error(key, value, "each parameter once"))
            }
            Some((key, _)) => Err(ParamsError::UnknownKey {
                policy: self.name,
                key: key.clone(),
                known: match &self.known_keys[..] {
                    [] => "none".to_owned(),
                    known => format!("one of {}", known.join(", ")),
                },
            }),
        }
    }
}
