//! Replays where too many connections to a port cost.

use std::sync::Arc;

use serde_json::Value;
use weir_core::model::Goodput;
use weir_core::units::Rate;
use weir_trace::incast::Measured;

use crate::args;
use weir_console::failure::Failure;
use weir_console::table::{bytes, count, percent, rate};

/// Measurements that were read, and the buffer that is asked for.
pub struct Cost {
    /// The name they were asked for by.
    name: String,
    measured: Measured,
    buffer: u32,
}

impl Cost {
    /// Reads those that were asked for, if any were.
    ///
    /// # Errors
    /// If they cannot be read, or say nothing of the buffer.
    pub fn read(args: &args::Behind) -> Result<Option<Cost>, Failure> {
        let (Some(path), Some(buffer)) = (&args.incast, args.buffer) else { return Ok(None) };
        let measured = weir_trace::incast::read(path)?;
        if let [only] = measured.incast.connections() {
            return Err(Failure::input(format_args!(
                "{}: field `connections`: `{only} in all lines`: expected several numbers of connections, to compare",
                path.display()
            )));
        }
        let buffers = measured.incast.buffers();
        let (least, most) = (buffers[0], buffers[buffers.len() - 1]);
        if !(least..=most).contains(&buffer) {
            let name = path.display();
            return Err(Failure::input(format_args!(
                "--buffer: `{buffer}`: expected {least} to {most} packets, as in {name}"
            )));
        }
        Ok(Some(Cost { name: path.display().to_string(), measured, buffer }))
    }

    /// What ports of a rate carry.
    pub fn goodput(&self, port_rate: Rate) -> Arc<Goodput> {
        Arc::new(
            self.measured.incast.goodput(self.buffer, port_rate).expect("the buffer is among those measured"),
        )
    }

    /// The file of the measurements.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it costs on ports of a rate, for people.
    pub fn caption(&self, port_rate: Rate) -> String {
        let goodput = self.goodput(port_rate);
        let best = goodput.best();
        let most = *self.measured.incast.connections().last().expect("one at least");
        let mut text = format!(
            "{}: incast of {} a connection, measured on a link of {}, {}; ports hold {}: up to {} {} nothing, {} leave {} of a port.\n",
            self.name,
            bytes(self.measured.incast.bytes()),
            rate(self.measured.incast.link()),
            self.measured,
            count(self.buffer, "packet"),
            count(best as u32, "connection"),
            if best == 1 { "costs" } else { "cost" },
            most,
            percent(goodput.part(most as usize)),
        );
        if let Some(error) = self.measured.incast.interpolation_error(port_rate) {
            text.push_str(&format!(
                "A buffer that was measured follows from those next to it up to {} of a port on average.\n",
                percent(error)
            ));
        }
        text
    }

    /// What a record says of it.
    pub fn values(&self) -> [(&'static str, Value); 2] {
        [("incast", self.name.clone().into()), ("buffer_packets", self.buffer.into())]
    }
}
