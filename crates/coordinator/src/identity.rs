//! Defines the identities of clients, and what each role may see and change.

use std::fmt;
use std::str::FromStr;

use weir_core::model::ServiceNames;

/// Identity of a client: the URI `weir://ROLE/NAME` of its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The agent of this host or switch: it sends reports and receives orders.
    Agent(String),
    /// The relay of this name: it sends reports and receives orders.
    Relay(String),
    /// A framework of this service: it may see and change objects of the service.
    Framework(String),
    /// A person or program that may change everything.
    Operator(String),
    /// A person or program that may see everything and change nothing.
    Reader(String),
    /// Any client on this host, over plain text; it may change everything.
    Local,
}

/// A URI that is not a valid identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "identity `{0}` is invalid; expected weir://agent/HOST, weir://relay/NAME, weir://framework/SERVICE, \
     weir://operator/NAME or weir://reader/NAME, with a last part that is {rule}",
    rule = ServiceNames::NAME_RULE
)]
pub struct InvalidIdentity(String);

impl Identity {
    /// Prefix of all identities.
    pub const SCHEME: &'static str = weir_tls::SCHEME;

    /// The role; `local` for a client over plain text.
    pub fn role(&self) -> &'static str {
        match self {
            Identity::Agent(_) => "agent",
            Identity::Relay(_) => "relay",
            Identity::Framework(_) => "framework",
            Identity::Operator(_) => "operator",
            Identity::Reader(_) => "reader",
            Identity::Local => "local",
        }
    }

    /// Whether this identity may see objects of a service; `None` stands for objects without a service.
    pub fn may_see(&self, service: Option<&str>) -> bool {
        match self {
            Identity::Operator(_) | Identity::Reader(_) | Identity::Local => true,
            Identity::Framework(own) => service.is_none_or(|service| service == own),
            Identity::Agent(_) | Identity::Relay(_) => false,
        }
    }

    /// Whether this identity may change objects of a service; `None` stands for objects that all services share.
    pub fn may_change(&self, service: Option<&str>) -> bool {
        match self {
            Identity::Operator(_) | Identity::Local => true,
            Identity::Framework(own) => service == Some(own),
            Identity::Reader(_) | Identity::Agent(_) | Identity::Relay(_) => false,
        }
    }
}

impl FromStr for Identity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Identity, InvalidIdentity> {
        let invalid = || InvalidIdentity(text.chars().take(200).flat_map(char::escape_default).collect());
        let rest = text.strip_prefix(Identity::SCHEME).ok_or_else(invalid)?;
        let (role, name) = rest.split_once('/').ok_or_else(invalid)?;
        if !ServiceNames::is_name(name) {
            return Err(invalid());
        }
        let name = name.to_owned();
        match role {
            "agent" => Ok(Identity::Agent(name)),
            "relay" => Ok(Identity::Relay(name)),
            "framework" => Ok(Identity::Framework(name)),
            "operator" => Ok(Identity::Operator(name)),
            "reader" => Ok(Identity::Reader(name)),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Identity::Agent(name)
        | Identity::Relay(name)
        | Identity::Framework(name)
        | Identity::Operator(name)
        | Identity::Reader(name)) = self
        else {
            return f.write_str("a client on this host");
        };
        write!(f, "{}{}/{name}", Identity::SCHEME, self.role())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_round_trip_through_text() {
        for text in [
            "weir://agent/node-1",
            "weir://relay/eu-1",
            "weir://framework/ads",
            "weir://operator/ann",
            "weir://reader/b.c",
        ] {
            assert_eq!(text.parse::<Identity>().unwrap().to_string(), text);
        }
        let long = format!("weir://agent/{}", "x".repeat(101));
        for text in [
            "",
            "weir://",
            "weir://agent",
            "weir://agent/",
            "weir://agent/a/b",
            "weir://agent/a b",
            "weir://Agent/a",
            "weir://root/a",
            "http://agent/a",
            "weir://agent/a?x",
            " weir://agent/a",
            &long,
        ] {
            let error = text.parse::<Identity>().expect_err(text);
            assert!(error.to_string().len() < 500);
        }
    }

    #[test]
    fn each_role_has_its_own_permissions() {
        let identity = |text: &str| text.parse::<Identity>().unwrap();
        let (agent, framework) = (identity("weir://agent/ads"), identity("weir://framework/ads"));
        let relay = identity("weir://relay/ads");
        let (operator, reader) = (identity("weir://operator/ads"), identity("weir://reader/ads"));
        let permissions =
            |identity: &Identity, service| (identity.may_see(service), identity.may_change(service));
        for service in [None, Some("ads"), Some("search")] {
            assert_eq!(permissions(&agent, service), (false, false));
            assert_eq!(permissions(&relay, service), (false, false));
            assert_eq!(permissions(&operator, service), (true, true));
            assert_eq!(permissions(&Identity::Local, service), (true, true));
            assert_eq!(permissions(&reader, service), (true, false));
        }
        assert_eq!(permissions(&framework, Some("ads")), (true, true));
        assert_eq!(permissions(&framework, Some("search")), (false, false));
        assert_eq!(permissions(&framework, None), (true, false));
    }
}
