//! The fields of a [`PolicyView`](super::view::PolicyView): arrays of numbers by coflow, by live flow and by link.

use pyo3::PyResult;
use pyo3::exceptions::PyAttributeError;
use weir_core::model::{Coflow, LinkKind, Slot, View};
use weir_core::policy::Event;
use weir_core::solve::Contention;

use super::knowledge::{PolicyKnowledge, live_flows};
use super::view::Lent;

/// The bytes of numbers, each given as an array of bytes.
fn to_bytes<const N: usize>(numbers: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(N * numbers.size_hint().0);
    numbers.for_each(|number| bytes.extend_from_slice(&number));
    bytes
}

fn u32_bytes(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    to_bytes(numbers.map(u32::to_ne_bytes))
}

fn u64_bytes(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    to_bytes(numbers.map(u64::to_ne_bytes))
}

fn f64_bytes(numbers: impl Iterator<Item = f64>) -> Vec<u8> {
    to_bytes(numbers.map(f64::to_ne_bytes))
}

/// The numbers of a field, in the order of bytes of this machine.
///
/// # Errors
/// If no field has this name, or the policy does not know sizes.
pub(super) fn read_field<K: PolicyKnowledge>(lent: &mut Lent<K>, field: &str) -> PyResult<Vec<u8>> {
    let unknown = || PyAttributeError::new_err(format!("a view has no field `{field}`"));
    match field.split_once('.').ok_or_else(unknown)? {
        ("coflows", "contention") => Ok(contention(lent)),
        ("coflows", name) => read_coflows(&mut lent.network.view(), name, field)?.ok_or_else(unknown),
        ("flows", name) => read_flows(&lent.network.view(), name, field)?.ok_or_else(unknown),
        ("links", name) => read_links(&lent.network.view(), name).ok_or_else(unknown),
        _ => Err(unknown()),
    }
}

/// A field of the active coflows, in order of release.
fn read_coflows<K: PolicyKnowledge>(
    view: &mut View<'_, K>,
    name: &str,
    field: &str,
) -> PyResult<Option<Vec<u8>>> {
    let slots = view.active_coflows().to_vec();
    let coflows = || slots.iter().map(|&slot| view.coflow(slot));
    let counts = |count: fn(&Coflow) -> u32| u32_bytes(coflows().map(count));
    let floats = |number: fn(&Coflow) -> f64| f64_bytes(coflows().map(number));
    let of_slots = |number: &dyn Fn(Slot) -> f64| f64_bytes(slots.iter().map(|&slot| number(slot)));
    Ok(Some(match name {
        "id" => u64_bytes(coflows().map(|coflow| coflow.id)),
        "service" => counts(|coflow| coflow.application.0),
        "application" => counts(|coflow| coflow.application.1),
        "width" => counts(|coflow| coflow.width() as u32),
        "live_flows" => counts(|coflow| coflow.live_count() as u32),
        "released_at" => floats(|coflow| coflow.released_at),
        "deadline" => floats(|coflow| coflow.deadline),
        "weight" => floats(|coflow| coflow.weight),
        "sent_bytes" => of_slots(&|slot| view.total_sent_bytes(slot)),
        "rate" => {
            let mut rates = Vec::new();
            view.coflow_rates(&mut rates);
            of_slots(&|slot| rates[slot as usize])
        }
        "max_sent_bytes" => f64_bytes(slots.iter().map(|&slot| K::max_sent_bytes(slot, view))),
        "size" => {
            let sized = K::with_sizes(view, field)?;
            of_slots(&|slot| sized.total_bytes(slot))
        }
        "remaining_bytes" => {
            let sized = K::with_sizes(view, field)?;
            of_slots(&|slot| sized.total_remaining_bytes(slot))
        }
        _ => return Ok(None),
    }))
}

/// A field of the live flows of all active coflows: coflows in order of release, and flows of a coflow by ports.
fn read_flows<K: PolicyKnowledge>(view: &View<'_, K>, name: &str, field: &str) -> PyResult<Option<Vec<u8>>> {
    let flows = || live_flows(view).map(|(_, slot, flow)| (slot, flow));
    let floats =
        |number: &dyn Fn(Slot, u32) -> f64| f64_bytes(flows().map(|(slot, flow)| number(slot, flow)));
    let integers = |number: &dyn Fn(&Coflow, u32) -> usize| {
        u32_bytes(flows().map(|(slot, flow)| number(view.coflow(slot), flow) as u32))
    };
    Ok(Some(match name {
        "coflow" => u32_bytes(live_flows(view).map(|(position, ..)| position as u32)),
        "number" => integers(&|coflow, flow| coflow.spec_index(flow) as usize),
        "sending_link" => integers(&|coflow, flow| coflow.flow_port_links(flow).0),
        "receiving_link" => integers(&|coflow, flow| coflow.flow_port_links(flow).1),
        "sent_bytes" => floats(&|slot, flow| view.sent_bytes(slot, flow)),
        "rate" => floats(&|slot, flow| view.rate(slot, flow)),
        "size" => {
            let sized = K::with_sizes(view, field)?;
            floats(&|slot, flow| sized.flow_size(slot, flow))
        }
        "remaining_bytes" => {
            let sized = K::with_sizes(view, field)?;
            floats(&|slot, flow| sized.remaining_bytes(slot, flow))
        }
        "path_starts" => {
            let lengths = flows().map(|(slot, flow)| 2 + view.coflow(slot).flow_trunks(flow).len() as u32);
            let mut end = 0;
            u32_bytes(std::iter::once(0).chain(lengths.map(|length| {
                end += length;
                end
            })))
        }
        "path_links" => {
            let links = flows().flat_map(|(slot, flow)| view.coflow(slot).flow_links(flow));
            u32_bytes(links.map(|link| link as u32))
        }
        _ => return Ok(None),
    }))
}

/// A field of all links.
fn read_links<K: PolicyKnowledge>(view: &View<'_, K>, name: &str) -> Option<Vec<u8>> {
    let fabric = view.fabric();
    match name {
        "capacity" => Some(f64_bytes(fabric.limits())),
        "kind" => Some(u32_bytes((0..fabric.links()).map(|link| match fabric.kind(link) {
            LinkKind::Sender(_) => 0,
            LinkKind::Receiver(_) => 1,
            LinkKind::Trunk(_) => 2,
        }))),
        _ => None,
    }
}

/// By coflow: the number of others that share a link with it.
fn contention<K: PolicyKnowledge>(lent: &mut Lent<K>) -> Vec<u8> {
    let view = lent.network.view();
    let contention = lent.contention.get_or_insert_with(|| {
        let mut contention = Contention::default();
        for &slot in view.active_coflows() {
            contention.on_event(Event::CoflowReleased(slot), &view);
        }
        contention
    });
    contention.update_overlaps(&view);
    let contenders = |&slot: &Slot| contention.contenders(slot).iter().count() as u32;
    u32_bytes(view.active_coflows().iter().map(contenders))
}
