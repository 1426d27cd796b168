//! A kernel's basic blocks, and whether registers are written before they are read.

use crate::parse::Register;
use std::collections::HashMap;

/// Place at which a kernel goes on.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    Following,
    Goto(String),
    End,
}

/// An instruction or label in C++.
#[derive(Debug)]
pub struct Step {
    pub line: usize,
    pub code: String,
    label: Option<String>,
    pub reads: Vec<usize>,
    pub writes: Vec<usize>,
    pub next: Next,
    /// Whether a predicate decides if it runs.
    pub guarded: bool,
    /// Whether it is a barrier.
    pub waits: bool,
}

impl Step {
    pub fn new() -> Self {
        let (reads, writes) = (Vec::new(), Vec::new());
        Self {
            line: 0,
            code: String::new(),
            label: None,
            reads,
            writes,
            next: Next::Following,
            guarded: false,
            waits: false,
        }
    }

    pub fn label(name: &str) -> Self {
        Self { code: format!("{}:;", label(name)), label: Some(name.to_owned()), ..Self::new() }
    }
}

/// A label's name in C++.
pub fn label(name: &str) -> String {
    format!("to_{}", name.replace(['$', '%', '.'], "_"))
}

/// A set of registers, one bit each.
type Set = Vec<u64>;

/// Registers that nothing writes. Reading one stands for a value that does not matter, such as a vector's byte that is
/// never used.
pub fn unwritten(steps: &[Step], registers: &[Register]) -> Vec<usize> {
    let mut written = vec![false; registers.len()];
    steps.iter().flat_map(|step| &step.writes).for_each(|&register| written[register] = true);
    (0..registers.len()).filter(|&register| !written[register]).collect()
}

/// Finds labels that are missing, and a register that is read where it may not have been written; with the line. The
/// registers `given` have values from the start.
pub fn check(steps: &[Step], registers: &[Register], given: &[usize]) -> Result<(), (usize, String)> {
    let mut labels = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if let Some(label) = &step.label
            && labels.insert(label.as_str(), at).is_some()
        {
            return Err((step.line, format!("the label {label} is there twice")));
        }
    }
    // The registers written on every way to a step; none if no way has been found yet.
    let mut before: Vec<Option<Set>> = vec![None; steps.len() + 1];
    let mut start = vec![0; registers.len().div_ceil(64)];
    given.iter().for_each(|&register| start[register / 64] |= 1 << (register % 64));
    before[0] = Some(start);
    let mut waiting = vec![0];
    while let Some(mut at) = waiting.pop() {
        while at < steps.len() {
            let step = &steps[at];
            let Some(mut written) = before[at].clone() else { break };
            if !step.guarded {
                step.writes.iter().for_each(|&register| written[register / 64] |= 1 << (register % 64));
            }
            let mut reach = |to: usize| {
                let merged = match &before[to] {
                    None => written.clone(),
                    Some(known) => known.iter().zip(&written).map(|(a, b)| a & b).collect(),
                };
                let changed = before[to].as_ref() != Some(&merged);
                before[to] = Some(merged);
                changed
            };
            if let Next::Goto(label) = &step.next {
                let Some(&to) = labels.get(label.as_str()) else {
                    return Err((step.line, format!("there is no label {label}")));
                };
                if reach(to) {
                    waiting.push(to);
                }
            }
            if step.next != Next::Following && !step.guarded || !reach(at + 1) {
                break;
            }
            at += 1;
        }
    }
    if before[steps.len()].is_some() && !matches!(steps.last(), Some(Step { next: Next::End, guarded: false, .. })) {
        return Err((steps.last().map_or(0, |step| step.line), "the kernel does not end in ret".to_owned()));
    }
    for (step, written) in steps.iter().zip(&before) {
        let Some(written) = written else { continue };
        if let Some(&register) = step.reads.iter().find(|&&register| written[register / 64] >> (register % 64) & 1 == 0)
        {
            let name = &registers[register].name;
            return Err((step.line, format!("{name} is read, but not written on every way here")));
        }
    }
    Ok(())
}

/// The basic blocks of a kernel, numbered by their place. A barrier ends one.
#[derive(Debug)]
pub struct BasicBlocks {
    /// For each step, the basic block that begins before it. One that begins at a label begins after the label.
    pub begins: Vec<Option<u16>>,
    /// Numbers of instructions.
    pub lengths: Vec<u16>,
    /// Places in an order in which a basic block comes after all that lead to it, but for the ways back to the start of
    /// a loop, and after all of a loop that it does not belong to.
    pub ranks: Vec<u16>,
}

impl BasicBlocks {
    /// Divides a kernel in which `check` has found nothing.
    pub fn new(steps: &[Step]) -> Result<Self, String> {
        let (mut begins, mut lengths, mut labels) = (vec![None; steps.len()], Vec::<u16>::new(), HashMap::new());
        // The last step of each basic block.
        let mut lasts: Vec<usize> = Vec::new();
        let mut ended = true;
        for (at, step) in steps.iter().enumerate() {
            if let Some(label) = &step.label {
                labels.insert(label.as_str(), lengths.len());
                ended = true;
                continue;
            }
            if ended {
                begins[at] = Some(u16::try_from(lengths.len()).map_err(|_| "it is too long")?);
                lengths.push(0);
                lasts.push(at);
            }
            let last = lengths.len() - 1;
            lengths[last] = lengths[last].checked_add(1).ok_or("it is too long")?;
            lasts[last] = at;
            ended = step.next != Next::Following || step.waits;
        }
        let count = lengths.len();
        let following = lasts.iter().enumerate().map(|(block, &last)| {
            let step = &steps[last];
            let to = match &step.next {
                Next::Goto(label) => labels.get(label.as_str()).copied(),
                Next::Following | Next::End => None,
            };
            let next = (step.next == Next::Following || step.guarded).then_some(block + 1);
            to.into_iter().chain(next).filter(|&to| to < count).collect()
        });
        let mut order = Order { following: following.collect(), inside: vec![true; count], found: Vec::new() };
        order.run(&(0..count).collect::<Vec<_>>());
        let mut ranks = vec![0; count];
        (0..).zip(order.found).for_each(|(rank, block)| ranks[block] = rank);
        Ok(Self { begins, lengths, ranks })
    }
}

/// Puts basic blocks in order.
struct Order {
    following: Vec<Vec<usize>>,
    /// Whether a basic block is among those that are being ordered.
    inside: Vec<bool>,
    found: Vec<usize>,
}

impl Order {
    /// Orders these basic blocks, which are those inside. The first one is where they are entered, if they can be.
    fn run(&mut self, blocks: &[usize]) {
        let mut components = self.components(blocks);
        // A component is found after those that follow it.
        components.reverse();
        for component in components {
            let [first, rest @ ..] = &component[..] else { continue };
            self.found.push(*first);
            if rest.is_empty() {
                continue;
            }
            // A loop: without the ways back to its start, the rest has an order too.
            let outside: Vec<usize> = blocks.iter().copied().filter(|block| !rest.contains(block)).collect();
            let were: Vec<usize> = outside.into_iter().filter(|&block| self.inside[block]).collect();
            were.iter().for_each(|&block| self.inside[block] = false);
            self.run(rest);
            were.iter().for_each(|&block| self.inside[block] = true);
        }
    }

    /// The strongly connected components, each with the basic block first that was reached first (Tarjan).
    fn components(&self, blocks: &[usize]) -> Vec<Vec<usize>> {
        let count = self.following.len();
        let (mut number, mut lowest) = (vec![usize::MAX; count], vec![0; count]);
        let (mut open, mut is_open, mut found, mut next) = (Vec::new(), vec![false; count], Vec::new(), 0);
        for &start in blocks {
            if number[start] != usize::MAX {
                continue;
            }
            // Basic blocks on the way here, each with the number of ways from it that have been followed.
            let mut way = vec![(start, 0)];
            while let Some((block, followed)) = way.pop() {
                if followed == 0 {
                    (number[block], lowest[block]) = (next, next);
                    next += 1;
                    open.push(block);
                    is_open[block] = true;
                }
                match self.following[block].get(followed) {
                    Some(&to) => {
                        way.push((block, followed + 1));
                        if !self.inside[to] {
                            continue;
                        }
                        if number[to] == usize::MAX {
                            way.push((to, 0));
                        } else if is_open[to] {
                            lowest[block] = lowest[block].min(number[to]);
                        }
                    }
                    None => {
                        if let Some(&(before, _)) = way.last() {
                            lowest[before] = lowest[before].min(lowest[block]);
                        }
                        if lowest[block] == number[block] {
                            let at = open.iter().position(|&other| other == block).unwrap_or(0);
                            let component = open.split_off(at);
                            component.iter().for_each(|&block| is_open[block] = false);
                            found.push(component);
                        }
                    }
                }
            }
        }
        found
    }
}
