//! Serves the reload of the configuration file: `/v1/reload`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::body::QueryParams;
use super::{Api, check_may_change, run_to_completion};
use crate::audit::Actor;
use crate::problem::Problem;
use crate::reload::Reloaded;

/// What a reload does.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReloadMode {
    /// Whether the file is only checked, and the difference shown. Default: false.
    #[serde(default)]
    #[param(required = false)]
    check: bool,
}

/// Reads the configuration file again, and uses it if it has no error and fits all registered objects. Operators only.
#[utoipa::path(post, path = "/v1/reload", operation_id = "reload", params(ReloadMode),
    responses((status = 200, description = "The configuration is in use, or would be", body = Reloaded), Problem))]
pub async fn reload(
    State(api): State<Api>,
    actor: Actor,
    QueryParams(ReloadMode { check }): QueryParams<ReloadMode>,
) -> Result<Json<Reloaded>, Problem> {
    check_may_change(actor.identity(), None)?;
    run_to_completion(async move {
        let reloaded = api.reloader.reload(check).await?;
        if reloaded.applied {
            api.registry.audit().note_accepted(&actor, Value::Null, json!(reloaded.difference));
        }
        Ok(Json(reloaded))
    })
    .await
}
