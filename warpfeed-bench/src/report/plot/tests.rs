//! Tests of plots.

use super::drawing::*;
use super::time::classes;
use super::*;

fn series(name: &str, values: &[Option<f64>]) -> Series {
    Series::new(name, values.to_vec())
}

fn bar(name: &str, value: f64) -> Bar {
    Bar { name: name.to_owned(), value, interval: None, marked: false }
}

/// An attribute's numbers, of every element of a kind.
fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
    let start = format!("<{element} ");
    let elements = svg.split(&start[..]).skip(1);
    let value = |element: &str| element.split(&format!("{attribute}=\"")).nth(1)?.split('"').next()?.parse().ok();
    elements.filter_map(value).collect()
}

#[test]
fn scales_are_round_and_hold_all_values() {
    for (values, want) in [
        (vec![0.0, 77.82], (0.0, 80.0)),
        (vec![3.0], (0.0, 3.0)),
        (vec![-12.0, 71.0], (-20.0, 80.0)),
        (vec![], (0.0, 1.0)),
        (vec![0.013], (0.0, 0.015)),
    ] {
        let (low, high) = range(values.iter().copied());
        assert!((low - want.0).abs() < 1e-9 && (high - want.1).abs() < 1e-9, "{values:?}: {low} to {high}");
    }
}

#[test]
fn bars_are_as_high_as_their_values_and_missing_ones_are_not_there() {
    let groups = ["1".to_owned(), "12".to_owned()];
    let both = [series("a", &[Some(10.0), Some(5.0)]), series("b", &[None, Some(2.5)])];
    let svg = Axes::new("t", "s").of("load").grouped_bars(&groups, &both);
    // The first rectangles are the background and the legend.
    assert_eq!(numbers(&svg, "rect", "height")[3..], [HEIGHT, HEIGHT / 2.0, HEIGHT / 4.0]);
    assert!(svg.contains("<desc>a: load 1: 10.0 s; load 12: 5.00 s. b: load 1: none; load 12: 2.50 s.</desc>"));
}

#[test]
fn error_bars_go_from_end_to_end() {
    let spread = Spread::of(&[2.0, 3.0, 4.0]);
    let series = [Series::spread("a", &[spread, None])];
    let svg = Axes::new("t", "s").grouped_bars(&["x".to_owned(), "y".to_owned()], &series);
    let values = [Series::new("a", vec![Some(4.0), None])];
    let plain = Axes::new("t", "s").grouped_bars(&["x".to_owned(), "y".to_owned()], &values);
    let strokes = |svg: &str| svg.matches(&format!("stroke=\"{TEXT}\"")).count();
    assert_eq!((strokes(&svg), strokes(&plain)), (3, 0), "{svg}");
    let one = Bar { interval: Some((2.0, 4.0)), ..bar("a", 3.0) };
    assert_eq!(strokes(&Axes::new("t", "s").bars(&[one, bar("b", 4.0)])), 3);
    assert_eq!(strokes(&Axes::new("t", "s").lines(&[1.0, 2.0], &series)), 3);
}

#[test]
fn what_was_published_has_a_color_of_its_own() {
    let both = [series("A", &[Some(1.0), Some(2.0)]), series("A, published", &[Some(1.0), Some(1.9)])];
    let svg = Axes::new("t", "x").of("load").lines(&[1.0, 12.0], &both);
    assert_eq!((svg.matches(COLORS[1]).count(), svg.matches("stroke-dasharray").count()), (0, 1), "{svg}");
    let marked = Bar { marked: true, ..bar("chosen", 1.0) };
    let svg = Axes::new("t", "x").bars(&[marked, bar("other", 0.5), bar("published", 35.0)]);
    let count = |color: &str| svg.matches(&format!("fill=\"{color}\"")).count();
    assert_eq!([COLORS[0], BESIDE, PUBLISHED].map(count), [1, 1, 1], "{svg}");
    assert!(!Axes::new("t", "x").bars(&[bar("a", 1.0)]).contains(BESIDE), "no bar is highlighted");
}

#[test]
fn a_limit_is_a_line_where_its_value_is() {
    let limit = Limit { name: "the step alone".to_owned(), value: 5.0 };
    let groups = ["x".to_owned()];
    let svg =
        Axes::new("t", "s").limits(std::slice::from_ref(&limit)).grouped_bars(&groups, &[series("a", &[Some(10.0)])]);
    let words = "the step alone: 5.00 s";
    assert_eq!((svg.matches("stroke-dasharray").count(), svg.matches(words).count()), (2, 2), "{svg}");
    let svg = Axes::new("t", "x").limits(&[limit]).bars(&[bar("a", 1.0)]);
    let widths = numbers(&svg, "rect", "width");
    let right = WIDTH - RIGHT - width("1.00 x", SMALL) - 6.0;
    let left = width("a", SMALL) + 10.0;
    assert!((widths[1] - (right - left) / 5.0).abs() < 0.1, "the scale reaches to the line: {svg}");
}

#[test]
fn names_of_limits_do_not_overlap() {
    let limit = |value: f64| Limit { name: format!("step {value}"), value };
    let one = [series("a", &[Some(7_000.0), Some(3_000.0)])];
    let svg = Axes::new("t", "s").limits(&[445.0, 79.0, 202.0].map(limit)).lines(&[1.0, 2.0], &one);
    let y = |name: &str| {
        let text = svg.split("<text ").find(|text| text.contains(&format!(">{name}: "))).unwrap();
        text.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap()
    };
    let [low, middle, high] = ["step 79", "step 202", "step 445"].map(y);
    assert!(low - middle >= SMALL && middle - high >= SMALL, "{low} {middle} {high}");
}

#[test]
fn a_bar_that_would_dwarf_the_others_is_cut_and_says_so() {
    let svg = Axes::new("t", "images/s").bars(&[bar("read", 180_000.0), bar("whole", 400.0), bar("step", 200.0)]);
    let widths = numbers(&svg, "rect", "width");
    assert!((widths[2] / widths[3] - 2.0).abs() < 0.01 && widths[1] < 1.5 * widths[2], "{widths:?}");
    assert_eq!((svg.matches("180000 images/s, bar cut<").count(), svg.matches(" cut<").count()), (1, 1));
    assert!(!Axes::new("t", "ms").bars(&[bar("a", 3.0), bar("b", 1.0)]).contains("cut"));
}

#[test]
fn long_names_break_at_spaces_and_behind_hyphens() {
    let narrow = width("trivial-", SMALL);
    assert_eq!(wrapped("trivial-augment", SMALL, narrow), ["trivial-", "augment"]);
    assert_eq!(wrapped("trial-a, N\u{a0}=\u{a0}12", SMALL, narrow), ["trial-a,", "N\u{a0}=\u{a0}12"]);
    // This is a sign and not a hyphen.
    assert_eq!(wrapped("-5 %", SMALL, width("-5", SMALL)), ["-5", "%"]);
    assert_eq!(wrapped("rand-augment", SMALL, 999.0), ["rand-augment"]);
}

#[test]
fn waits_are_counted_in_classes_that_fit_them() {
    // Bounds, and counts between them.
    for (waits_ms, bounds, counts) in [
        (vec![], vec![0.0, 1.0], vec![0]),
        (vec![0.05, 0.15, 0.15, 0.3], vec![0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35], vec![1, 0, 2, 0, 0, 1]),
        (vec![1.0, 1.5, 3.0, 20.0], vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0], vec![2, 1, 0, 0, 1]),
        (vec![0.001, 0.5, 2_000.0], [-10, -8, -6, -4, -2, 0].map(|by| 2_f64.powi(by)).into(), vec![1, 0, 0, 0, 1, 0]),
        (vec![0.0, 0.0], vec![2_f64.powi(-10), 2_f64.powi(-9)], vec![2]),
        (vec![3.0, 3.0], vec![3.0, 3.001], vec![2]),
    ] {
        let got = classes(&waits_ms);
        let at = |i: usize| (got.0[i] - bounds[i]).abs() < 1e-9;
        assert!((0..bounds.len()).all(at) && got.1.starts_with(&counts), "{waits_ms:?}: {got:?}");
        assert_eq!((got.0.len(), got.1.iter().sum::<u32>()), (got.1.len() + 1, waits_ms.len() as u32), "{got:?}");
        assert!(got.1.len() <= 12 && (waits_ms.is_empty() || *got.1.last().unwrap() > 0), "{got:?}");
    }
}

#[test]
fn a_histogram_is_labelled_at_both_ends_and_with_how_many_it_is_of() {
    let svg = histogram("t", &[0.001, 0.0015, 0.003, 0.02]);
    for words in [">1<", ">32<", "n = 4 batches", " 1 to 2 ms: 2.", " 16 to 32 ms: 1."] {
        assert!(svg.contains(words), "{words} in {svg}");
    }
}

#[test]
fn plots_beside_each_other_share_a_scale() {
    let groups = ["x".to_owned()];
    let [low, high] = [[series("a", &[Some(1.0)])], [series("a", &[Some(10.0)])]];
    let all = extent(&[low[0].clone(), high[0].clone()]);
    let height = |series: &[Series], at_least| {
        numbers(&Axes::new("t", "s").at_least(at_least).grouped_bars(&groups, series), "rect", "height")[1]
    };
    assert_eq!((height(&low, OWN), height(&low, all), height(&high, all)), (HEIGHT, HEIGHT / 10.0, HEIGHT));
    let half = [0.5; 10];
    let svg = heat_map("t", &[("core 0".into(), &half)], 0.1, 4.0);
    assert!(svg.contains(">4.00 s<") && svg.contains("core 0 50 %"), "{svg}");
    let stretch = [Stretch { lane: 0, start_s: 0.0, end_s: 1.0 }];
    assert!(timeline("t", &["train"], &stretch, 4.0).contains(">4.00 s<"));
}

#[test]
fn neighbors_of_one_shade_are_one_shape() {
    let values = [0.5; 200];
    let svg = heat_map("t", &[("core 0".into(), &values)], 0.1, 0.0);
    assert_eq!(svg.matches('M').count(), 2, "one of the words and one of a path: {svg}");
    assert!(svg.contains("core 0 50 %") && svg.contains(">20.0 s<"), "{svg}");
}

#[test]
fn nothing_to_show_is_shown_as_nothing() {
    for svg in [
        Axes::new("t", "s").grouped_bars(&[], &[]),
        Axes::new("t", "s").bars(&[]),
        Axes::new("t", "s").bars(&[bar("none", 0.0)]),
        Axes::new("t", "%").of("load").lines(&[], &[]),
        heat_map("t", &[], 0.1, 0.0),
        timeline("t", &[], &[], 0.0),
        histogram("t", &[]),
    ] {
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    assert!(heat_map("<&>", &[("x".into(), &[])], 0.1, 0.0).contains("&lt;&amp;&gt;"));
}

/// The longest names and values must stay within the plot.
#[test]
fn all_text_is_inside() {
    let groups: Vec<String> = (0..6).map(|i| format!("a group with a long name {i}")).collect();
    let many: Vec<Series> =
        (0..5).map(|i| series(&format!("candle-resnet50: A, CPU, sequential {i}"), &[Some(0.1234); 6])).collect();
    let long = "How often the trainer waited how long, with 16 threads and prefetch 4, built anew";
    let row = [0.3; 700];
    let rows: Vec<(String, &[f32])> = (0..200).map(|i| (format!("video dec. {i}"), &row[..])).collect();
    for svg in [
        Axes::new(long, "ms").of("workers").grouped_bars(&groups, &many),
        Axes::new(long, "images/s").bars(&[bar("16 threads, prefetch 4 (anew)", 180_000.0), bar("b", 1.0)]),
        Axes::new(long, "%").of("load").lines(&[1.0, 2.0, 4.0, 8.0, 12.0, 1000.0], &many),
        heat_map(long, &rows, 0.1, 0.0),
        timeline(long, &["set-up", "train"], &[Stretch { lane: 1, start_s: 0.0, end_s: 123_456.0 }], 0.0),
        histogram(long, &[0.2; 40_000]),
        histogram(long, &[9.0; 3]),
    ] {
        for text in svg.split("<text ").skip(1) {
            let number = |name: &str| text.split(&format!("{name}=\"")).nth(1)?.split('"').next()?.parse::<f64>().ok();
            let (Some(x), Some(size)) = (number("x"), number("font-size")) else { continue };
            let words = text.split('>').nth(1).unwrap().trim_end_matches("</text");
            let share = if text.contains("\"end\"") { 1.0 } else { 0.5 * f64::from(text.contains("\"middle\"")) };
            let left = x - share * width(words, size);
            assert!(left >= 0.0 && left + width(words, size) <= WIDTH, "{words} at {left} of {svg}");
        }
    }
}
