//! Parameters of policies as text: `saath:d=4:lcof=off`.

use std::fmt::Display;
use std::str::FromStr;

/// Why a policy could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// No policy has this name.
    #[error("unknown policy `{name}`; expected one of {known}")]
    UnknownPolicy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The policy orders coflows on links between regions, not on ports of a switch.
    #[error(
        "policy `{name}` is for the links of a wide area, not for ports of one switch; expected one of {known}"
    )]
    NotForSwitch {
        /// The policy.
        name: String,
        /// What there is for a switch.
        known: String,
    },
    /// The policy divides the ports of a switch, not links between regions.
    #[error(
        "policy `{name}` is for ports of one switch, not for the links of a wide area: expected one of {known}"
    )]
    NotForWideArea {
        /// The policy.
        name: String,
        /// What there is for a wide area.
        known: String,
    },
    /// The policy has no such parameter.
    #[error("policy `{policy}` has no parameter `{key}`: expected {known}")]
    UnknownKey {
        /// The policy.
        policy: String,
        /// What was given.
        key: String,
        /// What there is.
        known: String,
    },
    /// A part that is not `key=value`.
    #[error("policy `{policy}`: `{part}` is not a parameter: expected `key=value`")]
    NoValue {
        /// The policy.
        policy: String,
        /// The part.
        part: String,
    },
    /// A policy that cannot be a leaf of a tree.
    #[error(
        "policy `{name}` cannot be inside a policy tree: expected `fair` or a policy that sets rates itself"
    )]
    Leaf {
        /// The policy.
        name: String,
    },
    /// A value that does not fit.
    #[error("policy `{policy}`: `{key}={value}` does not fit: expected {expected}")]
    Value {
        /// The policy.
        policy: String,
        /// The parameter.
        key: String,
        /// What was given.
        value: String,
        /// What fits.
        expected: String,
    },
}

/// A policy's name and what was said about its parameters.
#[derive(Debug, Clone)]
pub struct Params {
    name: String,
    given: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Params {
    /// Splits `name:key=value:key=value`.
    ///
    /// # Errors
    /// A part without `=`.
    pub fn parse(spec: &str) -> Result<Params, ParamsError> {
        let mut parts = spec.split(':');
        let name = parts.next().unwrap_or_default().trim().to_owned();
        let mut given = Vec::new();
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| ParamsError::NoValue { policy: name.clone(), part: part.to_owned() })?;
            given.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(Params { name, given, known: Vec::new() })
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn refuse(&self, key: &str, value: &str, expected: &str) -> ParamsError {
        ParamsError::Value {
            policy: self.name.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        }
    }

    fn take_text(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        let at = self.given.iter().position(|(k, _)| k == key)?;
        Some(self.given.remove(at).1)
    }

    /// The value of `key` if it was given and `fits`, else `default`.
    ///
    /// # Errors
    /// A value that cannot be read or does not fit.
    pub fn take_with<T: FromStr + Display>(
        &mut self,
        key: &'static str,
        default: T,
        fits: impl Fn(&T) -> bool,
        expected: &str,
    ) -> Result<T, ParamsError> {
        match self.take_text(key) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(value) if fits(&value) => Ok(value),
                _ => Err(self.refuse(key, &text, expected)),
            },
        }
    }

    /// Numbers with `/` between them that all fit; `default` if not given.
    ///
    /// # Errors
    /// One that cannot be read or does not fit.
    pub fn take_list(
        &mut self,
        key: &'static str,
        default: f64,
        fits: impl Fn(f64) -> bool,
        expected: &str,
    ) -> Result<Vec<f64>, ParamsError> {
        let Some(text) = self.take_text(key) else { return Ok(vec![default]) };
        let numbers: Option<Vec<f64>> =
            text.split('/').map(|part| part.trim().parse().ok().filter(|number| fits(*number))).collect();
        numbers.ok_or_else(|| self.refuse(key, &text, expected))
    }

    /// `on` or `off`.
    ///
    /// # Errors
    /// Anything else.
    pub fn switch(&mut self, key: &'static str, default: bool) -> Result<bool, ParamsError> {
        match self.take_text(key).as_deref() {
            None => Ok(default),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(text) => Err(self.refuse(key, text, "`on` or `off`")),
        }
    }

    /// One of some words; the first is the default.
    ///
    /// # Errors
    /// Any other word.
    pub fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Result<T, ParamsError> {
        match self.take_text(key) {
            None => Ok(words[0].1),
            Some(text) => match words.iter().find(|(word, _)| *word == text) {
                Some((_, value)) => Ok(*value),
                None => {
                    let words: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
                    Err(self.refuse(key, &text, &words.join(" or ")))
                }
            },
        }
    }

    /// Refuses what nobody asked for.
    ///
    /// # Errors
    /// The first parameter that the policy does not have, or that was given twice.
    pub fn finish(self) -> Result<(), ParamsError> {
        match self.given.first() {
            None => Ok(()),
            Some((key, value)) if self.known.contains(&key.as_str()) => {
                Err(self.refuse(key, value, "each parameter once"))
            }
            Some((key, _)) => Err(ParamsError::UnknownKey {
                policy: self.name,
                key: key.clone(),
                known: match &self.known[..] {
                    [] => "none".to_owned(),
                    known => format!("one of {}", known.join(", ")),
                },
            }),
        }
    }
}
