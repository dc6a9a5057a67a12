//! Reads bodies and parameters of requests. Errors are [`Problem`]s that name the field or parameter.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::path::ErrorKind as PathError;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::Api;
use crate::identity::Identity;
use crate::problem::{Location, Problem};
use crate::values::PageLimits;

/// A body that is a JSON object. Unknown fields are errors if `T` denies them, and nesting is limited.
pub struct JsonObject<T>(pub T);

/// A body that is any JSON value.
pub struct JsonValue<T>(pub T);

/// A body that is text.
pub struct TextBody(pub String);

/// The parameters of the query.
pub struct QueryParams<T>(pub T);

/// The parameter of the path.
pub struct PathParam(pub String);

impl<T: DeserializeOwned> FromRequest<Api> for JsonObject<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<JsonObject<T>, Problem> {
        let bytes = read_body(request, api).await?;
        // Serde would accept an array and use its elements as the fields of the object.
        if bytes.trim_ascii_start().starts_with(b"[") {
            return Err(Problem::invalid(Location::Body(String::new()), "an array", "an object"));
        }
        parse_json(&bytes).map(JsonObject)
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for JsonValue<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<JsonValue<T>, Problem> {
        parse_json(&read_body(request, api).await?).map(JsonValue)
    }
}

impl FromRequest<Api> for TextBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<TextBody, Problem> {
        let text = String::from_utf8(read_body(request, api).await?);
        text.map(TextBody).map_err(|_| {
            let (status, at) = (StatusCode::UNPROCESSABLE_ENTITY, Location::Body(String::new()));
            Problem::located(status, at, "not valid text", "UTF-8")
        })
    }
}

impl<T: DeserializeOwned> FromRequestParts<Api> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<QueryParams<T>, Problem> {
        let query = Query::from_request_parts(parts, api).await;
        query.map(|Query(params)| QueryParams(params)).map_err(|error| {
            let text = error.body_text();
            // The text starts with the step that failed.
            let reason = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, reason)| reason);
            query_problem(parts.uri.query().unwrap_or_default(), reason)
        })
    }
}

/// The problem of an invalid query; `reason` is the message of serde.
fn query_problem(query: &str, reason: &str) -> Problem {
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    if let Some((name, "invalid digit found in string")) = reason.split_once(": ") {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|pair| pair.0 == name).map_or("", |pair| pair.1);
        return Problem::invalid(Location::parameter(name), value, "a whole number");
    }
    match (quoted_after(reason, "unknown field `"), reason.rsplit_once("expected ")) {
        (Some(name), Some((_, expected))) => {
            Problem::located(status, Location::parameter(name), "unknown parameter", expected)
        }
        _ => Problem::new(status, format!("query: {reason}")),
    }
}

impl FromRequestParts<Api> for PathParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<PathParam, Problem> {
        let path = Path::<String>::from_request_parts(parts, api).await;
        path.map(|Path(name)| PathParam(name)).map_err(|error| {
            let parameter = match &error {
                PathRejection::FailedToDeserializePathParams(failed) => match failed.kind() {
                    PathError::InvalidUtf8InPathParam { key } => key.as_str(),
                    _ => "id",
                },
                _ => "id",
            };
            let path = parts.uri.path().trim_start_matches("/v1/");
            let value = path.split('/').nth(1).unwrap_or_default();
            Problem::invalid(Location::parameter(parameter), value, "UTF-8 in percent-encoding")
        })
    }
}

/// Number of entries of a page.
pub fn page_size(limit: Option<usize>, limits: &PageLimits) -> Result<usize, Problem> {
    let (size, max) = (limit.unwrap_or(limits.default), limits.max);
    if (1..=max).contains(&size) {
        return Ok(size);
    }
    let expected = format!("a number from 1 to {max}");
    Err(Problem::invalid(Location::parameter("limit"), &size.to_string(), &expected))
}

/// Reads a whole body. Waits for a permit for each of its bytes.
async fn read_body(request: Request, api: &Api) -> Result<Vec<u8>, Problem> {
    let max_bytes = api.limits.max_body.get() as usize;
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let too_long = || {
        let expected = format!("at most {} (`limits.body`)", api.limits.max_body);
        Problem::located(StatusCode::PAYLOAD_TOO_LARGE, Location::Body(String::new()), "too long", &expected)
    };
    if length.is_some_and(|length| length > max_bytes) {
        return Err(too_long());
    }
    let permits = u32::try_from(length.unwrap_or(max_bytes)).map_err(|_| too_long())?;
    let identity = request.extensions().get::<Arc<Identity>>().cloned();
    let identity = identity.as_deref().unwrap_or(&Identity::Local);
    let _permit = api.body_permits.acquire(identity, permits).await.map_err(|_| too_long())?;
    let body: Body = request.into_body();
    let bytes = axum::body::to_bytes(body, max_bytes).await;
    bytes.map(Vec::from).map_err(|error| {
        let text = error.to_string();
        if text.contains("length limit") { too_long() } else { Problem::new(StatusCode::BAD_REQUEST, text) }
    })
}

/// Parses JSON, with errors that have a JSON pointer.
fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize(&mut input) {
        Ok(value) => input.end().map(|()| value).map_err(|error| json_problem(&error)),
        Err(error) => {
            let pointer = json_pointer(error.path());
            let error = error.into_inner();
            Err(if error.is_data() { field_problem(pointer, &error) } else { json_problem(&error) })
        }
    }
}

fn json_problem(error: &serde_json::Error) -> Problem {
    let detail = format!("request body is not valid JSON: {error}");
    let pointer = Some(Box::default());
    Problem { pointer, expected: Some("JSON".into()), ..Problem::new(StatusCode::BAD_REQUEST, detail) }
}

/// A path of serde as a JSON pointer (RFC 6901).
fn json_pointer(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        pointer.push('/');
        match segment {
            Segment::Seq { index } => pointer += &index.to_string(),
            Segment::Map { key } => pointer += &escape_pointer(key),
            Segment::Enum { variant } => pointer += &escape_pointer(variant),
            // Serde does not report the field, so the pointer is that of the enclosing value.
            Segment::Unknown => {
                pointer.pop();
                break;
            }
        }
    }
    pointer
}

/// Escapes a key for a JSON pointer.
fn escape_pointer(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The text after `prefix`, up to the next backtick.
fn quoted_after<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.split_once(prefix)?.1.split('`').next()
}

/// The problem of JSON that has another structure than the expected type; `error` is the error of serde.
fn field_problem(pointer: String, error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    let field = |name: &str| Location::Body(format!("{pointer}/{}", escape_pointer(name)));
    if let Some(name) = quoted_after(text, "missing field `") {
        return Problem::located(status, field(name), "missing field", "a value");
    }
    if let Some(name) = quoted_after(text, "duplicate field `") {
        return Problem::located(status, field(name), "duplicate field", "one value");
    }
    let Some((found, expected)) = text.rsplit_once("expected ") else {
        return Problem::invalid(Location::Body(pointer), text, "another value");
    };
    let expected = match expected {
        "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f64" => "a number",
        expected if expected.starts_with("struct ") => "an object",
        "a sequence" => "an array",
        expected => expected,
    };
    if let Some(name) = quoted_after(found, "unknown field `") {
        let problem = Problem::located(status, Location::Body(pointer), "unknown field", expected);
        return Problem { value: Some(name.into()), ..problem };
    }
    let found = found.trim_end_matches([',', ' ']);
    let value = found.strip_prefix("invalid type: ").or_else(|| found.strip_prefix("invalid value: "));
    let value = value.unwrap_or(found);
    // Serde writes numbers in backticks.
    let value = quoted_after(value, "`").unwrap_or(value);
    Problem::invalid(Location::Body(pointer), value, expected)
}
