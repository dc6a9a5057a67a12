//! Extrapolates the limit of a series of rounds.
//!
//! Near its fixed point a round is a linear map, and with cyclic bottlenecks convergence can take hundreds of rounds.
//! Reduced rank extrapolation (Eddy 1979, Mesina 1977) finds the weighted mean of the last few states that a round
//! would change least, as a Krylov method would. It needs only the states. An extrapolation that makes the residual
//! much worse is reverted.

/// Number of states that a leap needs: one more than the differences that it combines.
const STATE_COUNT: usize = 10;

/// The largest relative change of a level in a leap.
const MAX_RELATIVE_STEP: f64 = 0.5;

/// Rounds after which a leap is judged.
const TRIAL_ROUNDS: usize = 3;

/// A leap is reverted if the residual has grown by more than this factor.
const MAX_RESIDUAL_GROWTH: f64 = 2.0;

/// The action that the solver takes after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExtrapolationAction {
    /// Continue with the next round: too few states are recorded, or the last leap is not judged yet.
    Wait,
    /// Extrapolate: enough states are recorded.
    Extrapolate,
    /// Revert the last leap: it made the residual much worse.
    Revert,
}

/// The states after the last rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Extrapolation {
    /// Levels followed by passes, state by state.
    states: Vec<f64>,
    state_count: usize,
    /// The state before the last leap, and the residual of that state.
    state_before: Vec<f64>,
    residual: f64,
    /// Rounds since the last leap; none if there was no leap or it was reverted.
    rounds_since: Option<usize>,
    differences: Vec<f64>,
}

impl Extrapolation {
    pub(super) fn clear(&mut self) {
        self.state_count = 0;
        self.states.clear();
        self.rounds_since = None;
    }

    /// Records the state after a round and its residual, and returns the next action.
    pub(super) fn record_round(
        &mut self,
        residual: f64,
        levels: &[f64],
        passes: &[f64],
    ) -> ExtrapolationAction {
        if let Some(since) = &mut self.rounds_since {
            *since += 1;
            if *since == TRIAL_ROUNDS && residual > MAX_RESIDUAL_GROWTH * self.residual {
                return ExtrapolationAction::Revert;
            }
        }
        self.states.extend_from_slice(levels);
        self.states.extend_from_slice(passes);
        self.state_count += 1;
        if self.state_count < STATE_COUNT {
            return ExtrapolationAction::Wait;
        }
        self.residual = residual;
        ExtrapolationAction::Extrapolate
    }

    pub(super) fn revert(&mut self, levels: &mut [f64], passes: &mut [f64]) {
        levels.copy_from_slice(&self.state_before[..levels.len()]);
        passes.copy_from_slice(&self.state_before[levels.len()..]);
        self.clear();
    }

    pub(super) fn extrapolate(&mut self, levels: &mut [f64], passes: &mut [f64]) {
        let width = levels.len() + passes.len();
        let states: Vec<&[f64]> = self.states.chunks_exact(width).collect();
        let last = states[STATE_COUNT - 1];
        self.state_before.clear();
        self.state_before.extend_from_slice(last);
        // Relative changes of the values that change and are finite in all states.
        const CHANGES: usize = STATE_COUNT - 1;
        self.differences.clear();
        let usable = |i: usize| last[i] > 0.0 && states.iter().all(|state| state[i].is_finite());
        let moving: Vec<usize> =
            (0..width).filter(|&i| usable(i) && states.iter().any(|state| state[i] != last[i])).collect();
        for &i in &moving {
            let rows = states.windows(2).map(|pair| (pair[1][i] - pair[0][i]) / last[i]);
            self.differences.extend(rows);
        }
        let mut matrix = [[0.0; CHANGES + 1]; CHANGES];
        for changes in self.differences.chunks_exact(CHANGES) {
            for (row, a) in matrix.iter_mut().zip(changes) {
                for (sum, b) in row.iter_mut().zip(changes) {
                    *sum += a * b;
                }
            }
        }
        // A small addition to the diagonal keeps the matrix regular if changes are nearly parallel.
        let trace: f64 = (0..CHANGES).map(|a| matrix[a][a]).sum();
        for (a, row) in matrix.iter_mut().enumerate() {
            row[a] += 1e-15 * trace;
            row[CHANGES] = 1.0;
        }
        if let Some(weights) = solve_linear(matrix) {
            let sum: f64 = weights.iter().sum();
            let step = |i: usize| -> f64 {
                weights.iter().zip(&states[1..]).map(|(w, state)| w / sum * (state[i] - last[i])).sum()
            };
            // Limit the step, since the map differs further away, but keep its direction, which may be that of a drift.
            let largest_step = moving.iter().map(|&i| (step(i) / last[i]).abs()).fold(0.0, f64::max);
            let step_fraction =
                if largest_step > MAX_RELATIVE_STEP { MAX_RELATIVE_STEP / largest_step } else { 1.0 };
            for &i in &moving {
                let to = last[i] + step_fraction * step(i);
                if i < levels.len() {
                    levels[i] = to;
                } else {
                    passes[i - levels.len()] = to.min(1.0);
                }
            }
        }
        self.clear();
        self.rounds_since = Some(0);
    }
}

/// Solves linear equations, with the right-hand side in the last column; none if they are singular.
fn solve_linear<const N: usize, const M: usize>(mut m: [[f64; M]; N]) -> Option<[f64; N]> {
    for pivot in 0..N {
        let best = (pivot..N).max_by(|&a, &b| m[a][pivot].abs().total_cmp(&m[b][pivot].abs()))?;
        m.swap(pivot, best);
        if m[pivot][pivot] == 0.0 {
            return None;
        }
        for row in pivot + 1..N {
            let factor = m[row][pivot] / m[pivot][pivot];
            let from = m[pivot];
            for (to, from) in m[row].iter_mut().zip(from).skip(pivot) {
                *to -= factor * from;
            }
        }
    }
    let mut solution = [0.0; N];
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| m[row][column] * solution[column]).sum();
        solution[row] = (m[row][M - 1] - known) / m[row][row];
    }
    solution.iter().all(|x| x.is_finite()).then_some(solution)
}
