//! Tests of verdicts.

use super::simulated::{BUSY, Noise, QUIET, rates};
use super::*;

#[test]
fn counts_are_those_of_the_rank_sum() {
    // By hand: 1, 1, 2, 3, 5, 7 arrangements have 0 to 5 misplaced pairs.
    for (sum, misplaced_pairs) in [(1.0, 0), (2.0, 1), (4.0, 2), (7.0, 3), (12.0, 4), (19.0, 5)] {
        let (total, just) = (12_870.0, 2.0 * sum / 12_870.0);
        assert_eq!(misplaced(8, 8, just + 1e-9), Some(misplaced_pairs), "{sum} of {total}");
        assert_ne!(misplaced(8, 8, just - 1e-9), Some(misplaced_pairs), "{sum} of {total}");
    }
    // Two rounds of each are separated by chance in one of three comparisons, three in one of ten.
    assert_eq!((misplaced(2, 2, 1.0 / 3.0 + 1e-9), misplaced(2, 2, 0.33)), (Some(0), None));
    assert_eq!((misplaced(3, 3, 0.1 + 1e-9), misplaced(3, 3, 0.09)), (Some(0), None));
    // Tables of the test (two-sided, 0.05): 23 of 10 and 10, 17 of 9 and 9, 24 of 7 and 15 rounds.
    assert_eq!([(10, 10), (9, 9), (7, 15)].map(|(n, m)| misplaced(n, m, 0.05)), [Some(23), Some(17), Some(24)]);
    assert_eq!(misplaced(0, 5, 0.05), None);
    assert_eq!((fewest_rounds(level(1)), fewest_rounds(level(15))), (5, 7));
}

#[test]
fn a_limit_is_told_by_the_signs_of_the_rounds() {
    // 2 / 2^8 is less than 1 %, and 2 (1 + 16 + 120) / 2^16 as well.
    let figures = |above: usize, below: usize| [vec![2.0; above], vec![1.0; below]].concat();
    for (above_it, below, want) in
        [(8, 0, Some(true)), (0, 8, Some(false)), (7, 0, None), (2, 14, Some(false)), (13, 3, None), (8, 8, None)]
    {
        assert_eq!(above(&figures(above_it, below), 1.5, LEVEL), want, "{above_it} above, {below} below");
    }
    assert_eq!(above(&[], 1.5, LEVEL), None);
}

#[test]
fn few_rounds_cannot_tell_and_many_are_averaged() {
    let rounds = |n: usize, by: f64| (0..n).map(|i| by * (1.0 + 1e-3 * i as f64)).collect::<Vec<f64>>();
    assert_eq!(Verdict::of(&rounds(4, 1.0), &rounds(4, 9.0), LEVEL), Verdict::CannotTell { rounds: 5 });
    assert!(matches!(Verdict::of(&rounds(5, 1.0), &rounds(5, 9.0), LEVEL), Verdict::Larger(_)));
    assert!(matches!(Verdict::of(&rounds(5_000, 9.0), &rounds(5_000, 1.0), LEVEL), Verdict::Smaller(_)));
    assert!(matches!(Verdict::of(&rounds(20, 1.0), &rounds(20, 1.01), LEVEL), Verdict::NotDistinguishable(_)));
    let same = Verdict::of(&[1.0; 20], &[1.0; 20], LEVEL);
    assert_eq!(same.words("slower", "faster"), "not distinguishable (0.0 % faster to 0.0 % faster)");
    assert!(Verdict::of(&[0.0; 20], &rounds(20, 1.0), LEVEL).differs());
    let slower = Verdict::of(&rounds(8, 1.0), &rounds(8, 0.7), LEVEL).words("slower", "faster");
    assert!(slower.starts_with("30 % slower (30 to 30 %)"), "{slower}");
}

#[test]
fn the_smallest_that_is_surely_as_good_is_chosen() {
    let choice = |medians: &[f64], rounds, noise| {
        let rates = rates(1, medians, rounds, noise);
        Choice::of(&rates.iter().map(Vec::as_slice).collect::<Vec<_>>(), level(pairs(medians.len()))).unwrap()
    };
    let found = choice(&[60.0, 100.0, 100.0, 100.0, 100.0], 16, QUIET);
    assert_eq!(found.smallest, Some(1));
    assert!(matches!(found.verdicts[0], Some(Verdict::Smaller(_))), "{found:?}");
    let few = choice(&[60.0, 100.0], 1, QUIET);
    assert_eq!((few.fastest, few.smallest, few.rounds_needed()), (1, None, Some(5)));
    let wild = Noise { own: 0.5, ..BUSY };
    let unclear = choice(&[100.0; 4], 16, wild);
    assert_eq!(unclear.smallest, Some(unclear.fastest), "nothing is as good for sure: {unclear:?}");
    assert_eq!(unclear.unclear().count(), unclear.fastest);
    assert_eq!(choice(&[100.0], 1, QUIET).smallest, Some(0), "nothing to compare it with");
    assert!(Choice::of(&[], LEVEL).is_none());
}

/// Speeds that change from round to round make false verdicts no more frequent.
#[test]
fn complete_separation_is_no_more_frequent_where_rounds_differ() {
    let separated = |shared| {
        let noise = Noise { own: 0.1, shared, stalls: 0.0 };
        let separated = |report: &u64| {
            let cases = rates(*report, &[1.0, 1.0], 3, noise);
            Verdict::of(&cases[0], &cases[1], 0.1 + 1e-9).differs()
        };
        (0..20_000).filter(separated).count()
    };
    let [alike, different] = [separated(0.0), separated(0.2)];
    assert!((1_600..2_100).contains(&alike) && different < alike, "{alike} and {different} of 20,000");
}
