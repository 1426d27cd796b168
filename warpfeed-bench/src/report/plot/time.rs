//! Plots over time: heat maps, timelines and histograms of waits.

use super::drawing::{COLORS, Drawing, GRID, NORMAL, RIGHT, SMALL, WIDTH, range, short, step, widest, width};
use std::fmt::Write;

/// A stretch of time in a lane of a timeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Number of the lane.
    pub lane: usize,
    /// Start in seconds.
    pub start_s: f64,
    /// End in seconds.
    pub end_s: f64,
}

/// A heat map of rows of values from 0 to 1 over time, from light to dark. The time axis ends at `until_s`, or at the
/// last sample if that is later; plots to be compared share it.
#[must_use]
pub fn heat_map(title: &str, rows: &[(String, &[f32])], interval_s: f64, until_s: f64) -> String {
    const MOST_CELLS: usize = 6_000;
    const MOST_COLUMNS: usize = 240;
    const SHADES: usize = 20;
    let mut drawing = Drawing::new(title);
    let row_height = (480.0 / rows.len().max(1) as f64).clamp(4.0, 22.0);
    let left = widest(rows.iter().map(|(name, _)| &**name), SMALL) + 10.0;
    let sampled = rows.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let samples = sampled.max((until_s / interval_s.max(f64::MIN_POSITIVE)).round() as usize);
    // If there are more samples than columns, neighbors share a column.
    let columns = (MOST_CELLS / rows.len().max(1)).clamp(60, MOST_COLUMNS);
    let chunk = samples.div_ceil(columns).max(1);
    let column_width = (WIDTH - left - RIGHT) / samples.div_ceil(chunk).max(1) as f64;
    let mut shaded: [Vec<(f64, f64, f64)>; SHADES + 1] = Default::default();
    let mut words = String::from("Means:");
    for (i, (name, values)) in rows.iter().enumerate() {
        let top = drawing.top + i as f64 * row_height;
        // All rows are named only if there is enough space.
        if row_height >= 13.0 || i.is_multiple_of((14.0 / row_height).ceil() as usize) {
            drawing.text(left - 6.0, top + row_height / 2.0 + 4.0, "end", SMALL, name);
        }
        let mean = |values: &[f32]| values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
        let mut before = SHADES + 1;
        for (column, chunk) in values.chunks(chunk).enumerate() {
            let level = (mean(chunk).clamp(0.0, 1.0) * SHADES as f64).round() as usize;
            match shaded[level].last_mut() {
                // A column with the shade of its neighbor widens the neighbor.
                Some((_, _, wide)) if level == before => *wide += column_width,
                _ => shaded[level].push((left + column as f64 * column_width, top, column_width + 0.3)),
            }
            before = level;
        }
        if !values.is_empty() {
            let _ = write!(words, " {name} {:.0} %,", 100.0 * mean(values));
        }
    }
    for (level, rects) in shaded.iter().enumerate() {
        drawing.rects(row_height - 1.0, &shade(level as f64 / SHADES as f64), rects);
    }
    drawing.top += rows.len() as f64 * row_height;
    drawing.times(left, samples as f64 * interval_s);
    for i in 0..=10 {
        drawing.rect(left + 34.0 + f64::from(i) * 14.0, drawing.top + 4.0, 14.3, 12.0, &shade(f64::from(i) / 10.0));
    }
    drawing.text(left + 28.0, drawing.top + 14.0, "end", SMALL, "0 %");
    drawing.text(left + 194.0, drawing.top + 14.0, "start", SMALL, "100 % busy");
    drawing.top += 18.0;
    drawing.finish(words.trim_end_matches([',', ':']))
}

/// A shade from nearly white to dark blue. It darkens evenly, so that it can be read without color.
fn shade(value: f64) -> String {
    let value = value.clamp(0.0, 1.0);
    let mix = |light: f64, dark: f64| (light + (dark - light) * value).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(238.0, 8.0), mix(243.0, 48.0), mix(248.0, 107.0))
}

/// A timeline of named lanes, from 0 to `until_s`, or to the last end if that is later. Below the name of a lane is the
/// sum of its stretches.
#[must_use]
pub fn timeline(title: &str, lanes: &[&str], stretches: &[Stretch], until_s: f64) -> String {
    const LANE: f64 = 36.0;
    let mut drawing = Drawing::new(title);
    let end = stretches.iter().map(|stretch| stretch.end_s).fold(until_s, f64::max).max(1e-9);
    let sum = |lane| stretches.iter().filter(|s| s.lane == lane).map(|s| s.end_s - s.start_s).sum::<f64>();
    let sums: Vec<String> = (0..lanes.len()).map(|lane| format!("{} s", short(sum(lane)))).collect();
    let left = widest(lanes.iter().copied().chain(sums.iter().map(String::as_str)), NORMAL) + 10.0;
    let x = |seconds: f64| left + (WIDTH - left - RIGHT) * seconds / end;
    for (i, lane) in lanes.iter().enumerate() {
        let top = drawing.top + i as f64 * LANE;
        drawing.text(left - 8.0, top + 15.0, "end", NORMAL, lane);
        drawing.text(left - 8.0, top + 29.0, "end", SMALL, &sums[i]);
        drawing.line((left, top + LANE - 2.0), (WIDTH - RIGHT, top + LANE - 2.0), GRID, 1.0);
        let rects = stretches.iter().filter(|stretch| stretch.lane == i).map(|stretch| {
            let (from, to) = (x(stretch.start_s), x(stretch.end_s));
            // Leaves a gap between neighbors, unless nothing would remain.
            (from, top + 5.0, if to - from > 3.0 { to - from - 0.8 } else { (to - from).max(0.4) })
        });
        drawing.rects(LANE - 11.0, COLORS[0], &rects.collect::<Vec<_>>());
    }
    drawing.top += lanes.len() as f64 * LANE;
    drawing.times(left, end);
    let words = lanes.iter().zip(&sums).map(|(lane, sum)| format!("{lane} {sum}"));
    drawing.finish(&format!("Sums: {}.", words.collect::<Vec<_>>().join(", ")))
}

/// Most classes of a histogram.
const MOST_CLASSES: f64 = 12.0;
/// Shortest time in milliseconds that a histogram tells from none.
const SHORTEST_MS: f64 = 1.0 / 1024.0;

/// Bounds of classes from the shortest to the longest of these times in milliseconds, and the number of times in each
/// class. Classes are equally wide if the longest time is less than eight times the shortest, else they end at powers
/// of two, or of four or more.
pub(super) fn classes(times: &[f64]) -> (Vec<f64>, Vec<u32>) {
    let (low, high) = times.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &time| (low.min(time), high.max(time)));
    if low > high {
        return (vec![0.0, 1.0], vec![0]);
    }
    let bounds: Vec<f64> = if high < 8.0 * low {
        let step = step((high - low).max(high / 1e3));
        let first = (low / step + 1e-6).floor();
        let count = (high / step + 1e-6).floor() - first + 1.0;
        (0..=count as u32).map(|i| (first + f64::from(i)) * step).collect()
    } else {
        let first = low.max(SHORTEST_MS).log2().floor();
        let doublings = high.max(SHORTEST_MS).log2().floor() - first + 1.0;
        let by = (doublings / MOST_CLASSES).ceil();
        (0..=(doublings / by).ceil() as u32).map(|i| (first + by * f64::from(i)).exp2()).collect()
    };
    let mut counts = vec![0; bounds.len() - 1];
    for time in times {
        let class = bounds[1..].iter().take_while(|&&bound| *time >= bound * (1.0 - 1e-9)).count();
        counts[class.min(bounds.len() - 2)] += 1;
    }
    (bounds, counts)
}

/// A histogram of waits in seconds.
#[must_use]
pub fn histogram(title: &str, seconds: &[f64]) -> String {
    let (bounds, counts) = classes(&seconds.iter().map(|wait| 1e3 * wait).collect::<Vec<_>>());
    let mut drawing = Drawing::new(title);
    let longest = width(&counts.iter().max().copied().unwrap_or(0).to_string(), SMALL);
    let upright = longest > WIDTH * 0.88 / counts.len() as f64;
    drawing.top += if upright { longest } else { 12.0 };
    // With 5 or more the scale's steps are whole batches.
    let (low, high) = range(counts.iter().map(|&count| f64::from(count)).chain([5.0]));
    let (y, left) = drawing.scale(low, high, "");
    let class_width = (WIDTH - left - RIGHT) / counts.len() as f64;
    let mut words = format!("{} waits.", seconds.len());
    for (class, &count) in counts.iter().enumerate() {
        let x = left + class as f64 * class_width;
        drawing.rect(x + 1.0, y(f64::from(count)), class_width - 2.0, y(0.0) - y(f64::from(count)), COLORS[0]);
        if count > 0 {
            drawing.on_bar(x + class_width / 2.0, y(f64::from(count)) - 3.0, class_width, upright, &count.to_string());
            let [from, to] = [bounds[class], bounds[class + 1]].map(short_ms);
            let _ = write!(words, " {from} to {to} ms: {count}.");
        }
    }
    // Labels both ends, and the bounds between them as far as there is room.
    let (right, end) = (WIDTH - RIGHT, short_ms(bounds[counts.len()]));
    drawing.text(right, drawing.top + 16.0, "end", SMALL, &end);
    let mut free = 0.0;
    let mut labels = Vec::new();
    for (class, bound) in bounds[..counts.len()].iter().enumerate() {
        let (x, label) = (left + class as f64 * class_width, short_ms(*bound));
        let half = width(&label, SMALL) / 2.0;
        if x - half >= free && x + half + 6.0 < right - width(&end, SMALL) {
            free = x + half + 6.0;
            labels.push((x, label));
        }
    }
    let of = format!("wait for a batch, ms; n = {} batches", seconds.len());
    drawing.places(labels.into_iter(), WIDTH, &of);
    drawing.finish(&words)
}

fn short_ms(ms: f64) -> String {
    format!("{ms:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}
