//! Bodies of requests, and what follows `?`.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use super::Api;
use crate::problem::Problem;

/// A body in JSON. Unknown fields are errors if `T` says so, and nesting is limited.
pub struct In<T>(pub T);

/// A body that is a text.
pub struct Text(pub String);

/// What follows `?`.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for In<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<In<T>, Problem> {
        parse(&read(request, api).await?).map(In)
    }
}

impl FromRequest<Api> for Text {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Text, Problem> {
        let text = String::from_utf8(read(request, api).await?);
        text.map(Text).map_err(|_| Problem::invalid("body".to_owned(), "bytes that are no text", "UTF-8"))
    }
}

impl<T: DeserializeOwned> FromRequestParts<Api> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Asked<T>, Problem> {
        let asked = Query::from_request_parts(parts, api).await;
        asked.map(|Query(asked)| Asked(asked)).map_err(|error| {
            // It begins with what was tried.
            let text = error.body_text();
            let why = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, why)| why);
            let expected = match why {
                why if why.ends_with("invalid digit found in string") => {
                    format!("a whole number for `{}`", why.split(':').next().unwrap_or_default())
                }
                why => why.rsplit_once("expected ").map_or(why, |(_, expected)| expected).to_owned(),
            };
            Problem::invalid("query".to_owned(), parts.uri.query().unwrap_or(""), &expected)
        })
    }
}

/// How many entries a page may have: `default` without a `limit`, and at most `max`.
pub fn page_size(limit: Option<usize>, default: usize, max: usize) -> Result<usize, Problem> {
    let size = limit.unwrap_or(default);
    if (1..=max).contains(&size) {
        return Ok(size);
    }
    let expected = format!("a number from 1 to {max}");
    Err(Problem::invalid("limit".to_owned(), &size.to_string(), &expected))
}

/// All of a body, once there is room for it.
async fn read(request: Request, api: &Api) -> Result<Vec<u8>, Problem> {
    let most = api.limits.body.get() as usize;
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let long = || {
        let detail = format!("the body is too long: expected at most {}", api.limits.body);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    if length.is_some_and(|length| length > most) {
        return Err(long());
    }
    let room = u32::try_from(length.unwrap_or(most)).map_err(|_| long())?;
    let _room = api.bodies.acquire_many(room).await.map_err(|_| long())?;
    let body: Body = request.into_body();
    let bytes = axum::body::to_bytes(body, most).await;
    bytes.map(Vec::from).map_err(|error| {
        let text = error.to_string();
        if text.contains("length limit") { long() } else { Problem::new(StatusCode::BAD_REQUEST, text) }
    })
}

/// What a body in JSON says.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    let (field, error) = match serde_path_to_error::deserialize(&mut input) {
        Ok(value) => match input.end() {
            Ok(()) => return Ok(value),
            Err(error) => ("body".to_owned(), error),
        },
        Err(error) => match error.path().to_string() {
            path if path == "." || path == "?" => ("body".to_owned(), error.into_inner()),
            path => (path, error.into_inner()),
        },
    };
    if !error.is_data() {
        let detail = format!("the body is no JSON: {error}");
        return Err(Problem { field: Some(field), ..Problem::new(StatusCode::BAD_REQUEST, detail) });
    }
    let text = error.to_string();
    // Where the field is has been said.
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let (found, expected) = match text.rsplit_once("expected ") {
        Some((found, expected)) => (found.trim_end_matches([',', ' ']), expected),
        None => (text, "it to be there"),
    };
    // Of a value that was found, what it quotes is it.
    let kinds = ["invalid type: ", "invalid value: ", "unknown field "];
    let found = match kinds.iter().find_map(|kind| found.strip_prefix(kind)) {
        Some(value) => {
            value.strip_suffix('`').and_then(|value| Some(value.split_once('`')?.1)).unwrap_or(value)
        }
        None => found,
    };
    let expected = match expected {
        "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f64" => "a number",
        expected => expected,
    };
    Err(Problem::invalid(field, found, expected))
}
