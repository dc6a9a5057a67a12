//! Policies that are written in Python: registered by name, so that they run wherever a specification of a policy is accepted.
//!
//! A policy is an object with the methods of `weir.simulator.own_policy.Runner`, which calls the methods of the user's class. Each replay
//! makes its own object. Replays run without the global interpreter lock; each call of the object takes it.
//!
//! An object that raises an exception decides nothing more. The replay ends with a [`PolicyFailure`], and [`take_python_error`] returns the
//! exception in the thread of the replay.

mod decision;
mod failure;
mod fields;
mod knowledge;
mod registry;
mod view;

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use weir_core::allocation::Allocation;
use weir_core::model::{CoflowKey, View};
use weir_core::policy::{Event, MIN_WAKEUP_SECONDS, Policy, PolicyFailure};
use weir_core::solve::{Contention, ResidualCapacity};

use decision::{Decision, apply_decision};
pub use failure::take_python_error;
use failure::{describe, keep_python_error};
use knowledge::PolicyKnowledge;
pub use registry::{is_registered, register_policy};
pub use view::PolicyView;
use view::{Lent, SharedNetwork};

/// A policy that an object of Python decides for.
struct PythonPolicy<K> {
    /// A `weir.simulator.own_policy.Runner`.
    runner: Py<PyAny>,
    /// Whether the object receives events.
    handles_events: bool,
    /// Whether the object sets the time of the next schedule.
    sets_wakeups: bool,
    /// From the first access on.
    contention: Option<Contention>,
    residual: ResidualCapacity,
    failure: Option<PolicyFailure>,
    knowledge: std::marker::PhantomData<K>,
}

impl<K: PolicyKnowledge> PythonPolicy<K> {
    fn new(runner: &Bound<'_, PyAny>) -> PyResult<PythonPolicy<K>> {
        Ok(PythonPolicy {
            handles_events: runner.getattr("handles_events")?.extract()?,
            sets_wakeups: runner.getattr("sets_wakeups")?.extract()?,
            runner: runner.clone().unbind(),
            contention: None,
            residual: ResidualCapacity::default(),
            failure: None,
            knowledge: std::marker::PhantomData,
        })
    }

    /// Calls the object with a view of the network, which is valid during the call. Returns `None` after an exception.
    fn call<R>(
        &mut self,
        view: &mut View<'_, K>,
        call: impl FnOnce(&Bound<'_, PyAny>, PolicyView) -> PyResult<R>,
    ) -> Option<R> {
        let lent = Lent { network: view.lend(), contention: self.contention.take() };
        let network: SharedNetwork<K> = Arc::new(Mutex::new(Some(lent)));
        let result = Python::try_attach(|py| {
            let result = call(self.runner.bind(py), PolicyView::new(Arc::clone(&network)));
            result.map_err(|error| {
                let reason = describe(py, &error);
                keep_python_error(error);
                reason
            })
        });
        let lent = network.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Lent { network, contention } = lent.expect("nothing else takes the network");
        view.restore(network);
        self.contention = contention;
        match result.unwrap_or_else(|| Err("the interpreter exits".to_owned())) {
            Ok(result) => Some(result),
            Err(reason) => {
                self.failure = Some(PolicyFailure { slot: None, reason });
                None
            }
        }
    }
}

impl<K: PolicyKnowledge> Policy for PythonPolicy<K> {
    type Knowledge = K;

    /// The object can read all keys.
    fn uses(&self, _: CoflowKey) -> bool {
        true
    }

    fn on_event(&mut self, event: Event, view: &mut View<'_, K>) {
        if let Some(contention) = &mut self.contention {
            contention.on_event(event, view);
        }
        if !self.handles_events {
            return;
        }
        let (kind, slot, flow) = match event {
            Event::CoflowReleased(slot) => ("coflow-released", Some(slot), None),
            Event::FlowLive(slot, flow) => ("flow-live", Some(slot), Some(flow)),
            Event::FlowInterrupted(slot, flow) => ("flow-interrupted", Some(slot), Some(flow)),
            Event::FlowCompleted(slot, flow) => ("flow-completed", Some(slot), Some(flow)),
            Event::CoflowCompleted(slot) => ("coflow-completed", Some(slot), None),
            Event::CapacityChanged => ("capacity-changed", None, None),
        };
        let coflow = slot.map(|slot| view.coflow(slot));
        let flow = coflow.zip(flow).map(|(coflow, flow)| coflow.spec_index(flow));
        let coflow = coflow.map(|coflow| coflow.id);
        self.call(view, |runner, native| {
            runner.call_method1("on_event", (kind, coflow, flow, native)).map(drop)
        });
    }

    fn schedule(&mut self, view: &mut View<'_, K>, out: &mut Allocation) {
        let decided = self
            .call(view, |runner, native| runner.call_method1("schedule", (native,))?.extract::<Decision>());
        if let Some(decision) = decided {
            self.failure = apply_decision(&decision, &mut self.residual, view, out).err();
        }
    }

    /// A time up to a microsecond ahead counts as a microsecond ahead, so that rounding repeats no schedule without end.
    fn next_wakeup(&mut self, view: &mut View<'_, K>, _: &Allocation) -> f64 {
        if !self.sets_wakeups {
            return f64::INFINITY;
        }
        let now = view.now();
        let next =
            self.call(view, |runner, native| runner.call_method1("next_wakeup", (native,))?.extract::<f64>());
        match next {
            None => f64::INFINITY,
            Some(next) if next >= now => next.max(now + MIN_WAKEUP_SECONDS),
            Some(invalid) => invalid,
        }
    }

    fn failure(&self) -> Option<PolicyFailure> {
        self.failure.clone()
    }
}
