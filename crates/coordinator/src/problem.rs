//! Why a request was not carried out, as RFC 9457 has it: `application/problem+json`.

use std::fmt;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use weir_core::saba::controller::ControllerError;
use weir_trace::TraceError;

use crate::master::Stopped;
use crate::policy::PolicyError;
use crate::store::StoreError;

/// The longest value that is shown.
const LONGEST: usize = 200;

/// Why a request was not carried out; nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// The status of the answer.
    pub status: u16,
    /// What that status means.
    pub title: &'static str,
    /// What is wrong.
    pub detail: String,
    /// Where in the request that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was found there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What would have been right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

impl Problem {
    /// One with this status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        let title = status.canonical_reason().unwrap_or("Error");
        let (detail, field, value, expected) = (detail.into(), None, None, None);
        Problem { status: status.as_u16(), title, detail, field, value, expected }
    }

    /// A value that is not what it should be.
    pub fn invalid(field: String, value: &str, expected: &str) -> Problem {
        let mut shown: String = value.chars().take(LONGEST).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        Problem {
            field: Some(field.clone()),
            value: Some(shown.clone()),
            expected: Some(expected.to_owned()),
            ..Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("{field}: `{shown}`: expected {expected}"),
            )
        }
    }

    /// Nothing of this kind has this name.
    pub fn unknown(kind: &str, name: &str) -> Problem {
        let name: String = name.chars().take(LONGEST).collect();
        Problem::new(StatusCode::NOT_FOUND, format!("there is no {kind} `{name}`"))
    }

    /// It does not go together with what there is.
    pub fn conflict(detail: &str) -> Problem {
        Problem::new(StatusCode::CONFLICT, detail)
    }

    /// There is no room for more.
    pub fn full(detail: &str) -> Problem {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
    }

    /// Who asks may not.
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
        let mut response = (status, Json(self)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

impl From<Stopped> for Problem {
    fn from(stopped: Stopped) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        tracing::error!(%error, "the store failed");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("not kept: {error}"))
    }
}

impl From<TraceError> for Problem {
    fn from(error: TraceError) -> Problem {
        let detail = error.to_string();
        match error {
            TraceError::Field { line, field, value, expected, .. } => {
                let field = format!("line {line}: {field}");
                Problem { detail, ..Problem::invalid(field, &value, &expected) }
            }
            TraceError::Io { .. } => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail),
        }
    }
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Problem {
        match error {
            PolicyError::Params(error) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
            PolicyError::Tree(error) => error.into(),
        }
    }
}

impl From<ControllerError> for Problem {
    fn from(error: ControllerError) -> Problem {
        Problem::conflict(&error.to_string())
    }
}
