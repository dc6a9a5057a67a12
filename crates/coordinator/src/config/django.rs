//! Reads `[django]`: the model by which the number of connections of hosts follows the loss.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_core::django::{BufferPredictor, CountSettings};
use weir_core::policy::django_settings;
use weir_fields::{FileError, TableFields, Value};
use weir_predict::{Loss, Predictor, file};

use crate::control_plane::ConnectionPredictor;
use crate::policy::{PolicySpec, ValidatedPolicy};

/// The length of a window in which the loss is measured, in seconds: several timeouts of TCP (200 ms).
const WINDOW: f64 = 1.0;

/// The minimum number of packets in a window.
const MIN_SEGMENTS: u64 = 100;

/// The loss up to which a window counts as one without loss.
const MIN_LOSS: f64 = 1e-3;

/// The windows without loss after which the number grows by one.
const GROWTH_WINDOWS: u32 = 5;

/// The number of connections is at most this factor of the most connections that were measured.
const MAX_CONNECTIONS_FACTOR: f64 = 2.0;

/// The model of `[django]`.
#[derive(Debug, Clone)]
pub struct ConnectionModel {
    /// The file of the model.
    pub path: PathBuf,
    /// What decides by it.
    pub predictor: ConnectionPredictor,
}

#[derive(Debug)]
struct SvmBuffers(Predictor);

impl BufferPredictor for SvmBuffers {
    fn predict_buffer(&self, loss: f64, connections: u32) -> u32 {
        let loss = Loss::new(loss.clamp(0.0, 1.0)).expect("the number is in the range of losses");
        self.0.predict(loss, connections).buffer
    }
}

/// Reads the table. It requires the policy `django`.
pub(super) fn read_connection_model(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    folder: &Path,
    policy: &ValidatedPolicy,
) -> Result<ConnectionModel, FileError> {
    const EXPECTED_FILE: &str = "the file of a model of `weir predict train`";
    let is_django = |spec: &&String| matches!(django_settings(spec), Ok(Some(_)));
    let other = match policy.spec() {
        PolicySpec::Policy(spec) => Some(spec.as_str()).filter(|_| !is_django(&spec)),
        PolicySpec::Tree(_) => Some("a tree"),
    };
    if let Some(other) = other {
        let expected =
            "`django` with its parameters, since `[django]` has a model for it; help: remove `[django]`";
        return Err(fields.key_error("policy", other, expected));
    }
    let mut table = fields.read_table(value, "django ".to_owned())?;
    let model_value = table.required("model", EXPECTED_FILE)?;
    let path = folder.join(table.read_string(&model_value, EXPECTED_FILE)?);
    table.finish()?;
    let model = table.referenced(&model_value, file::read(&path))?;
    let (predictor, conditions) = (model.predictor(), &model.training().conditions);
    let Some(scale) = predictor.connection_scale() else {
        let expected = "a model that was trained on several numbers of connections; help: measure them with `weir testbed \
             incast --steady --connections 8,16,32,64 --marks 20`, and train it again";
        return Err(table.value_error(&model_value, expected));
    };
    let Some(marking_threshold) = conditions.marking_threshold_packets else {
        let expected =
            "a model of measurements with marks; help: measure with `--marks`, the threshold of the switch";
        return Err(table.value_error(&model_value, expected));
    };
    let settings = CountSettings {
        window: WINDOW,
        min_segments: MIN_SEGMENTS,
        min_loss: MIN_LOSS,
        growth_windows: GROWTH_WINDOWS,
        marking_threshold,
        // A policy accepts as many.
        max_connections: (MAX_CONNECTIONS_FACTOR * scale.range().1).min(65_536.0) as u32,
    };
    let buffers = Arc::new(SvmBuffers(predictor.clone()));
    Ok(ConnectionModel { path, predictor: ConnectionPredictor { buffers, settings } })
}
