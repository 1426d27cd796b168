//! Step 2: the places at which threads start. With restart markers, each segment is a run. Without them it is unknown
//! where in the data a code begins, but a decoder that starts anywhere soon synchronizes with the right one.
//!
//! One block of threads works on an image. Each thread decodes its share from a guessed start of an MCU, and records
//! its state every [`CHECK_BITS`]. Then come rounds: a thread that did not start where the one before it has ended
//! decodes again from there, until it meets a state that it has recorded. When nothing changes any more, all starts are
//! right, because the first start is right, and each right start makes the next one right. This holds for damaged data
//! too.
//!
//! The method is Weißenberger and Schmidt's (arXiv 2111.09219).

use super::codes::Codes;
use super::unstuff::UnstuffedData;
use super::walk::WalkState;
use super::{Baseline, Reason};
use std::ops::Range;

/// Number of threads that share an image.
const THREADS: usize = 256;

/// Number of bits after which a thread records its state.
const CHECK_BITS: usize = 256;

/// Smallest share of a thread. Smaller shares would take more rounds, and small images need no more threads.
const MIN_SHARE_BITS: usize = 1024;

/// Largest number of rounds. An image that takes more is left to the CPU.
const MAX_ROUNDS: usize = 64;

/// The part of the data that one thread decodes to coefficients.
pub struct ThreadRun {
    pub start: WalkState,
    /// The thread stops at the first symbol from here on.
    pub end_bit: usize,
    /// The end of the data. No symbol reaches beyond it.
    pub data_end_bit: usize,
    /// Number of the first block in the scan.
    pub block: usize,
    /// The thread stops at this block.
    pub end_block: usize,
}

/// The segments between restart markers that contain the blocks `checked`. The first segment begins with these blocks.
pub(super) fn at_restarts(image: &Baseline, scan: &UnstuffedData, checked: &Range<usize>) -> Vec<ThreadRun> {
    let blocks = image.restart_interval_mcus as usize * image.mcu_blocks();
    let runs = scan.bounds.windows(2).zip(checked.clone().step_by(blocks));
    runs.map(|(bounds, block)| ThreadRun {
        start: WalkState::at(8 * bounds[0]),
        end_bit: 8 * bounds[1],
        data_end_bit: 8 * bounds[1],
        block,
        end_block: (block + blocks).min(checked.end),
    })
    .collect()
}

/// One thread's share of the data.
struct Share {
    start: WalkState,
    first_bit: usize,
    end_bit: usize,
    /// The first state at or after each multiple of [`CHECK_BITS`], and the number of blocks that ended before it. The
    /// last state is at the end.
    checks: Vec<(WalkState, usize)>,
}

impl Share {
    /// Decodes from `start` until it meets a state that was recorded before.
    fn decode(&mut self, codes: &Codes<'_>, scan: &UnstuffedData, start: WalkState) {
        self.start = start;
        let (mut state, mut blocks) = (start, 0);
        for check in 0..self.checks.len() {
            let bit = (self.first_bit + CHECK_BITS * (check + 1)).min(self.end_bit);
            while state.bit < bit {
                blocks += usize::from(state.step(codes, scan).ends_block);
            }
            let (met, before) = self.checks[check];
            if met == state {
                // From here on, everything is as before, except the number of blocks.
                self.checks[check..].iter_mut().for_each(|noted| noted.1 = noted.1 + blocks - before);
                return;
            }
            self.checks[check] = (state, blocks);
        }
    }

    fn end(&self) -> (WalkState, usize) {
        self.checks[self.checks.len() - 1]
    }
}

/// Finds the runs of a scan without restarts.
pub(super) fn synchronize(codes: &Codes<'_>, scan: &UnstuffedData, end_block: usize) -> Result<Vec<ThreadRun>, Reason> {
    let data_end_bit = 8 * scan.bounds[1];
    let share_bits = data_end_bit.div_ceil(THREADS).next_multiple_of(CHECK_BITS).max(MIN_SHARE_BITS);
    let nowhere = (WalkState::at(usize::MAX), 0);
    let mut shares: Vec<Share> = (0..data_end_bit)
        .step_by(share_bits)
        .map(|bit| {
            let end_bit = (bit + share_bits).min(data_end_bit);
            let checks = vec![nowhere; (end_bit - bit).div_ceil(CHECK_BITS)];
            let mut share = Share { start: WalkState::at(bit), first_bit: bit, end_bit, checks };
            share.decode(codes, scan, WalkState::at(bit));
            share
        })
        .collect();
    for round in 0.. {
        // The results of the last round; the threads work in parallel.
        let ends: Vec<WalkState> = shares.iter().map(|share| share.end().0).collect();
        let wrong = shares.iter_mut().skip(1).zip(ends).filter(|(share, end)| share.start != *end);
        let decoded = wrong.map(|(share, end)| share.decode(codes, scan, end)).count();
        if decoded == 0 {
            break;
        }
        if round == MAX_ROUNDS {
            return Err(Reason::Unsynchronized);
        }
    }
    let mut block = 0;
    let run = |share: &Share| {
        let run = ThreadRun { start: share.start, end_bit: share.end_bit, data_end_bit, block, end_block };
        block += share.end().1;
        run
    };
    Ok(shares.iter().map(run).collect())
}
