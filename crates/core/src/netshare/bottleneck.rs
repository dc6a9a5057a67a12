//! Detects flows that are limited elsewhere: flows that want to send more, and cannot use what the central allocator allows them.
//!
//! The paper (3.3) leaves this open. A flow below its limit is either held back by flows that send too much and that the allocator
//! limits at the same time, or by something that the allocator does not know. Only time shows which: in the first case the rate rises
//! as soon as the others are limited.
//!
//! - *Blocks.* Rates are means over blocks of 1 s. Over shorter times, lost packets and bursts change them by a tenth and more.
//! - *Limited elsewhere.* A flow whose rate did not rise above its best for 2 s. Its demand is then its best rate and 5 % more.
//!   The best rate stays that of the past while recent ones are at most a tenth lower: a rate that varies is not a rise.
//! - *Probes.* After 2 s, the flow demands twice its best rate for 2 s. After each probe without a rise, the time to the next one doubles,
//!   to 60 s at most.
//! - *Rises.* With these 5 %, a flow that is no longer limited elsewhere rises by more than the 3 % that count, and demands twice its new
//!   rate at once, and again, until it sends at its limit and so demands everything.
//! - *Gifts.* What a flow does not demand is given to others. If its rate then falls below nine tenths of its usual rate for 2 s, they may
//!   have taken it: at the link that they share, traffic that the allocator does not know also congests. Therefore the flow claims its
//!   share again: it demands everything for 3 s. If that restores at least half of its loss, it keeps its claim, for 4 s at first and
//!   twice as long after each gift that it had to claim back, to 60 s at most. The usual rate is the mean of the last two blocks before a
//!   gift. A best rate would be that of a block into which a queue was emptied, so that the rate of the next two looks low.

use super::{FlowDemand, scale_rate};
use crate::units::Rate;

/// Periods in a block: 1 s.
const BLOCK_PERIODS: u32 = 20;

/// Blocks without a rise after which a flow is limited elsewhere: 2 s. Also the first time to a probe, and the time for which a rate is
/// low before the flow claims its share again.
const FLAT_BLOCKS: u32 = 2;

/// The longest time to a probe, and of a claim: 60 s.
const MAX_WAIT_BLOCKS: u32 = 60;

/// Blocks in which a claim has to show an effect: 3 s. Queues drain, and others reduce their rates, in the first of them.
const TRIAL_BLOCKS: u32 = 3;

/// A flow that sends this fraction of its limit is limited by it. BBR sends 4 % less than it is allowed.
const FULL_USE_FRACTION: f64 = 0.9;

/// The minimum rise of a rate that counts.
const RISE_FACTOR: f64 = 1.03;

/// How much the demand of a flow exceeds its rate if the flow is limited elsewhere, and during a probe.
const GROWTH_FACTOR: f64 = 1.05;
const PROBE_FACTOR: f64 = 2.0;

/// A rate below this fraction of the usual one is low. The best rate is the last one at most divided by this.
const LOW_FACTOR: f64 = 0.9;

/// The periods of the current block.
#[derive(Debug, Clone, PartialEq, Default)]
struct Block {
    periods: u32,
    rate_sum: f64,
    limit_sum: f64,
    /// Periods in which the flow wanted to send more, under a limit.
    eager_periods: u32,
}

/// A flow that demands everything although it cannot use its limit.
#[derive(Debug, Clone, PartialEq)]
struct Claim {
    blocks_left: u32,
    /// The rate from which the claim has an effect; none after it.
    min_effect: Option<f64>,
}

/// Whether a flow is limited elsewhere.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BottleneckDetector {
    block: Block,
    /// The highest rate of a block since the last claim, and at most a ninth more than that of the last two before a wait.
    best_rate: f64,
    /// The rate of the last block.
    last_rate: f64,
    /// The mean rate of the last two blocks before the flow was limited elsewhere, 0 before.
    usual_rate: f64,
    /// Blocks without a rise.
    flat_blocks: u32,
    /// Blocks until the next probe, if the flow is limited elsewhere.
    blocks_to_probe: u32,
    /// 0 before the flow is limited elsewhere, then 1, and one more for each probe without a rise.
    failed_probes: u32,
    /// Consecutive blocks with a low rate, and the highest rate of these.
    low_blocks: u32,
    low_rate: f64,
    /// The number of claims with an effect, up to the one with the longest time.
    claims: u32,
    claim: Option<Claim>,
}

impl BottleneckDetector {
    /// Creates the state of a flow without measurements.
    pub fn new() -> BottleneckDetector {
        BottleneckDetector::default()
    }

    /// Adds a period: the rate sent, the limit, and whether the flow wanted to send more.
    pub fn add_period(&mut self, rate: Rate, limit: Option<Rate>, wants_more: bool) {
        let is_held_back =
            wants_more && limit.is_some_and(|limit| rate.get() < FULL_USE_FRACTION * limit.get());
        if !is_held_back && *self == BottleneckDetector::new() {
            return;
        }
        let block = &mut self.block;
        block.periods += 1;
        block.rate_sum += rate.get();
        block.limit_sum += limit.map_or(0.0, Rate::get);
        block.eager_periods += u32::from(wants_more && limit.is_some());
        if block.periods == BLOCK_PERIODS {
            let block = std::mem::take(block);
            self.end_block(&block);
        }
    }

    fn end_block(&mut self, block: &Block) {
        let was_limited = self.blocks_to_probe > 0;
        self.blocks_to_probe = self.blocks_to_probe.saturating_sub(1);
        if 2 * block.eager_periods < BLOCK_PERIODS {
            if block.eager_periods == 0 && self.blocks_to_probe == 0 {
                *self = BottleneckDetector::new();
            }
            return;
        }
        if block.rate_sum >= FULL_USE_FRACTION * block.limit_sum {
            *self = BottleneckDetector::new();
            return;
        }
        let rate = block.rate_sum / f64::from(BLOCK_PERIODS);
        let last_rate = std::mem::replace(&mut self.last_rate, rate);
        if let Some(claim) = self.claim.take() {
            self.continue_claim(claim, last_rate);
            return;
        }
        let is_low = rate < LOW_FACTOR * self.usual_rate;
        (self.low_blocks, self.low_rate) =
            if is_low { (self.low_blocks + 1, self.low_rate.max(rate)) } else { (0, 0.0) };
        if rate > RISE_FACTOR * self.best_rate {
            (self.best_rate, self.flat_blocks, self.blocks_to_probe) = (rate, 0, 0);
            self.failed_probes = self.failed_probes.min(1);
        } else if self.low_blocks == FLAT_BLOCKS {
            let min_effect = Some(0.5 * (self.low_rate + self.usual_rate));
            self.claim = Some(Claim { blocks_left: TRIAL_BLOCKS, min_effect });
        } else if !was_limited {
            self.flat_blocks += 1;
            if self.flat_blocks == FLAT_BLOCKS {
                self.start_wait(last_rate);
            }
        }
    }

    /// A block of a claim ends. A claim without an effect ends when its trial ends.
    fn continue_claim(&mut self, claim: Claim, last_rate: f64) {
        let Claim { mut blocks_left, mut min_effect } = claim;
        blocks_left -= 1;
        if min_effect.is_some_and(|min_effect| self.last_rate >= min_effect) {
            min_effect = None;
            let wait = ((2 * FLAT_BLOCKS) << self.claims).min(MAX_WAIT_BLOCKS);
            self.claims += u32::from(wait < MAX_WAIT_BLOCKS);
            blocks_left += wait;
        }
        if blocks_left > 0 {
            self.claim = Some(Claim { blocks_left, min_effect });
        } else {
            self.best_rate = self.last_rate.max(last_rate);
            self.start_wait(last_rate);
        }
    }

    /// The flow is limited elsewhere; `last_rate` is the rate of the block before the last one.
    fn start_wait(&mut self, last_rate: f64) {
        self.best_rate = self.best_rate.min(self.last_rate.max(last_rate) / LOW_FACTOR);
        self.usual_rate = 0.5 * (self.last_rate + last_rate);
        let wait = FLAT_BLOCKS << self.failed_probes;
        self.blocks_to_probe = wait.min(MAX_WAIT_BLOCKS);
        self.failed_probes += u32::from(wait < MAX_WAIT_BLOCKS);
        (self.flat_blocks, self.low_blocks, self.low_rate) = (0, 0, 0.0);
    }

    /// The demand of the flow if it wants to send more.
    pub fn demand(&self) -> FlowDemand {
        let factor = match (self.blocks_to_probe, self.failed_probes) {
            _ if self.claim.is_some() => return FlowDemand::Unlimited,
            (0, 0) => return FlowDemand::Unlimited,
            (0, _) => PROBE_FACTOR,
            _ => GROWTH_FACTOR,
        };
        FlowDemand::Rate(scale_rate(Rate::new(self.best_rate).unwrap_or(Rate::ZERO), factor))
    }
}
