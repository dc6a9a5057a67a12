//! Builds problem documents (RFC 9457, `application/problem+json`): why a request was refused, the part of the request, and
//! the expected value.

use std::collections::BTreeMap;
use std::fmt;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder, ResponsesBuilder, response};
use utoipa::{IntoResponses, ToSchema};
use weir_core::saba::controller::ControllerError;
use weir_fields::FileError;

use crate::control_plane::UnknownName;
use crate::control_thread::Stopped;
use crate::policy::PolicyError;
use crate::quota::QuotaReached;
use crate::store::StoreError;

/// The media type of a problem document.
const MEDIA_TYPE: &str = "application/problem+json";

/// Maximum length of a value in a problem, in characters.
const MAX_VALUE_CHARS: usize = 200;

/// Why a request was refused. A refused request changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The name of that status.
    pub title: &'static str,
    /// The part of the request, the problem and the expected value, in one sentence.
    pub detail: String,
    /// The field of a JSON body, as a JSON pointer (RFC 6901); the empty pointer is the whole body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub pointer: Option<Box<str>>,
    /// The parameter of the path or of the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub parameter: Option<Box<str>>,
    /// The line of a TOML document, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The value, at most 200 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub value: Option<Box<str>>,
    /// The expected value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub expected: Option<Box<str>>,
}

/// The detail of a problem: an extension of its response, for the audit log.
#[derive(Debug, Clone)]
pub struct ProblemDetail(pub String);

/// The part of a request that a problem is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A JSON pointer into the body.
    Body(String),
    /// A parameter of the path or of the query.
    Parameter(String),
    /// A line of a TOML document, and the field there.
    Line(usize, String),
}

impl Location {
    /// A field of the object in the body.
    pub fn field(name: &str) -> Location {
        Location::Body(format!("/{name}"))
    }

    /// A parameter of the path or of the query.
    pub fn parameter(name: &str) -> Location {
        Location::Parameter(name.to_owned())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Body(pointer) if pointer.is_empty() => f.write_str("request body"),
            Location::Body(pointer) => f.write_str(pointer),
            Location::Parameter(name) => write!(f, "parameter `{name}`"),
            Location::Line(line, field) => write!(f, "line {line}: {field}"),
        }
    }
}

impl Problem {
    /// A problem with this status and detail.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        let title = status.canonical_reason().unwrap_or("Error");
        Problem {
            status: status.as_u16(),
            title,
            detail: detail.into(),
            pointer: None,
            parameter: None,
            line: None,
            value: None,
            expected: None,
        }
    }

    /// A problem at one part of a request: `{location}: {wrong}; expected {expected}`.
    pub fn located(status: StatusCode, location: Location, wrong: &str, expected: &str) -> Problem {
        let mut problem = Problem::new(status, format!("{location}: {wrong}; expected {expected}"));
        problem.expected = Some(expected.into());
        match location {
            Location::Body(pointer) => problem.pointer = Some(pointer.into()),
            Location::Parameter(name) => problem.parameter = Some(name.into()),
            Location::Line(line, _) => problem.line = u32::try_from(line).ok(),
        }
        problem
    }

    /// An invalid value.
    pub fn invalid(location: Location, value: &str, expected: &str) -> Problem {
        let mut shown: String = value.chars().take(MAX_VALUE_CHARS).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        let wrong = format!("`{shown}` is invalid");
        Problem {
            value: Some(shown.into()),
            ..Problem::located(StatusCode::UNPROCESSABLE_ENTITY, location, &wrong, expected)
        }
    }

    /// The object in the path does not exist.
    pub fn not_found(kind: &str, name: &str, expected: &str) -> Problem {
        let name: String = name.chars().take(MAX_VALUE_CHARS).collect();
        let detail = format!("{kind} `{name}` does not exist; expected {expected}");
        Problem { expected: Some(expected.into()), ..Problem::new(StatusCode::NOT_FOUND, detail) }
    }

    /// The request contradicts the current state.
    pub fn conflict(detail: &str) -> Problem {
        Problem::new(StatusCode::CONFLICT, detail)
    }

    /// A limit is reached.
    pub fn limit_reached(detail: &str) -> Problem {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
    }

    /// The quota of a framework is reached: `{wrong}; expected {expected}`.
    pub fn quota_reached(detail: &str) -> Problem {
        const HELP: &str =
            "remove objects of the service, or raise `[limits.framework]` of the configuration";
        let expected = detail.rsplit_once("expected ").map(|(_, expected)| expected.into());
        Problem { expected, ..Problem::limit_reached(&format!("{detail}; help: {HELP}")) }
    }

    /// The client lacks the permission.
    pub fn forbidden(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, detail)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let detail = ProblemDetail(self.detail.clone());
        let mut response = (status, Json(self)).into_response();
        response.extensions_mut().insert(detail);
        let kind = HeaderValue::from_static(MEDIA_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// Every request can be refused, and every path can be unavailable.
impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<response::Response>> {
        let schema = Ref::from_schema_name(Problem::name());
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = |description: &str| {
            ResponseBuilder::new().description(description).content(MEDIA_TYPE, content.clone())
        };
        let responses = ResponsesBuilder::new()
            .response("4XX", response("The request is refused, and has changed nothing"))
            .response("5XX", response("The coordinator cannot answer"));
        responses.build().into()
    }
}

impl From<Stopped> for Problem {
    fn from(stopped: Stopped) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        // The store logs a failed write once, and not each change that it refuses until it can be written again.
        if !matches!(error, StoreError::Unwritable { .. } | StoreError::Superseded) {
            tracing::error!(%error, "the store failed");
        }
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("not stored: {error}"))
    }
}

impl From<QuotaReached> for Problem {
    fn from(reached: QuotaReached) -> Problem {
        Problem::quota_reached(&reached.to_string())
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Problem {
        match error {
            FileError::Field { line, field, value, expected, .. } => {
                Problem::invalid(Location::Line(line, field.to_string()), &value, &expected)
            }
            FileError::Io { .. } | FileError::WrongKind { .. } => {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
            }
        }
    }
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Problem {
        match error {
            PolicyError::Params(_) | PolicyError::NotEnforceable(_) => {
                let text = error.to_string();
                let (wrong, expected) = text.rsplit_once("expected ").unwrap_or((&text, "another policy"));
                let wrong = wrong.trim_end_matches([':', ';', ' ']);
                Problem::located(StatusCode::UNPROCESSABLE_ENTITY, Location::field("policy"), wrong, expected)
            }
            PolicyError::Tree(error) => error.into(),
        }
    }
}

impl From<UnknownName> for Problem {
    fn from(unknown: UnknownName) -> Problem {
        Problem::invalid(Location::field(unknown.field), &unknown.name, &unknown.expected)
    }
}

impl From<ControllerError> for Problem {
    fn from(error: ControllerError) -> Problem {
        Problem::conflict(&error.to_string())
    }
}
