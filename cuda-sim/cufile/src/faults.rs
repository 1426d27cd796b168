//! Faults that programs must bear: `CUDA_SIM_CUFILE`, or `cufile_sim_faults`.
//!
//! A text such as `handle=5008,read=short:0.3,batch=failed:0.5`: for each kind of call a fault, and how probably a call
//! has it (1 unless given).

use crate::state::Random;

/// The faults of each kind of call.
#[derive(Default, Clone)]
pub struct Faults(Vec<Fault>);

#[derive(Clone)]
struct Fault {
    of: String,
    what: String,
    rate: f64,
}

/// What texts may name, by kind of call.
const KNOWN: &[(&str, &[&str])] = &[
    ("open", &["5001", "5007", "hang"]),
    ("module", &["none"]),
    ("handle", &["5008", "5019", "5028", "5034"]),
    ("buffer", &["5016", "5023", "5024", "5036"]),
    ("read", &["short", "zero", "eio", "eintr", "5008", "5011", "change"]),
    ("batch", &["setup", "full", "failed", "timeout", "short", "late", "lost", "spoil"]),
];

impl Faults {
    /// Reads a text. The error names what is not known: if a wrong setting were ignored, a test would pass without
    /// testing anything.
    pub fn read(text: &str) -> Result<Self, String> {
        let fault = |part: &str| {
            let (of, rest) = part.split_once('=')?;
            let (what, rate) = rest.split_once(':').unwrap_or((rest, "1"));
            let known = KNOWN.iter().any(|(kind, all)| *kind == of && all.contains(&what));
            known.then_some(Fault { of: of.to_owned(), what: what.to_owned(), rate: rate.parse().ok()? })
        };
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| fault(part).ok_or_else(|| format!("unknown fault {part}"))).collect::<Result<_, _>>().map(Self)
    }

    /// The fault that a call of this kind has.
    pub fn draw(&self, of: &str, random: &mut Random) -> Option<&str> {
        let drawn = self.0.iter().find(|fault| fault.of == of && random.share() < fault.rate);
        drawn.map(|fault| fault.what.as_str())
    }

    /// The code that a call of this kind returns.
    pub fn code(&self, of: &str, random: &mut Random) -> Option<i32> {
        self.draw(of, random).and_then(|what| what.parse().ok())
    }
}
