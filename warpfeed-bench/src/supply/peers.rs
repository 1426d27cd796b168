//! The rounds of warpfeed and other loaders that `benches/peers/run --supply` wrote.

use super::{Curve, OWN_FIRST, OWN_LATER};
use crate::peers::Machine;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use warpfeed::{Error, Result};

/// The fields of the peers' file that are used.
#[derive(Deserialize)]
pub(super) struct Measured {
    pub(super) machine: Machine,
    pub(super) settings: serde_json::Value,
    supply: Vec<Round>,
}

#[derive(Deserialize)]
struct Round {
    contender: String,
    cores: usize,
    round: u32,
    images_per_s: f64,
}

impl Measured {
    pub(super) fn parse(json: &str) -> Result<Self> {
        let wrong =
            |got: String| Error::parameter("supply", "file", "what benches/peers/run --supply --out wrote", got);
        let measured: Self = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
        if measured.supply.is_empty() {
            return Err(wrong("a file without rounds".to_owned()));
        }
        Ok(measured)
    }

    /// The numbers of cores that were measured, in ascending order.
    pub(super) fn cores(&self) -> Vec<usize> {
        self.supply.iter().map(|round| round.cores).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn rounds(&self) -> u32 {
        self.supply.iter().map(|round| round.round).max().unwrap_or(0)
    }

    /// The rounds by loader, warpfeed first.
    pub(super) fn curves(&self) -> Vec<Curve> {
        let cores = self.cores();
        let mut by_name: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
        for round in &self.supply {
            let Some(place) = cores.iter().position(|&cores| cores == round.cores) else { continue };
            let rates = by_name.entry(&round.contender).or_insert_with(|| vec![Vec::new(); cores.len()]);
            rates[place].push(round.images_per_s);
        }
        const NAMES: [(&str, &str); 4] =
            [("warpfeed", OWN_LATER), ("warpfeed-first", OWN_FIRST), ("dali", "DALI"), ("torchvision", "torchvision")];
        let curve = |(key, name): (&str, &str)| Some(Curve { name: name.to_owned(), rates: by_name.remove(key)? });
        NAMES.into_iter().filter_map(curve).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_peers_become_curves() {
        let machine = r#"{"date": "", "cpu": "", "cores": 8, "memory_bytes": 1, "system": "", "load_average_1min": 0.1,
            "versions": {"warpfeed": "0.1.0"}}"#;
        let file = |rounds: &str| format!(r#"{{"machine": {machine}, "settings": {{}}, "supply": [{rounds}]}}"#);
        let text = file(
            r#"{"contender": "dali", "cores": 2, "round": 1, "images_per_s": 20.0},
            {"contender": "warpfeed", "cores": 1, "round": 1, "images_per_s": 30.0},
            {"contender": "warpfeed", "cores": 1, "round": 2, "images_per_s": 31.0},
            {"contender": "warpfeed", "cores": 8, "round": 2, "images_per_s": 99.0}"#,
        );
        let measured = Measured::parse(&text).unwrap();
        assert_eq!((measured.cores(), measured.rounds()), (vec![1, 2, 8], 2));
        let want =
            [(OWN_LATER, vec![vec![30.0, 31.0], vec![], vec![99.0]]), ("DALI", vec![vec![], vec![20.0], vec![]])];
        let want = want.map(|(name, rates)| Curve { name: name.to_owned(), rates });
        assert_eq!(measured.curves(), want);
        assert!(Measured::parse(&file("")).is_err());
    }
}
