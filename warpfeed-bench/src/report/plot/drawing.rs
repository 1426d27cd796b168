//! Elements of plots: shapes, text of estimated width, scales and legends.

use super::{Range, Series};
use std::fmt::Write;

pub(super) const WIDTH: f64 = 440.0;
pub(super) const RIGHT: f64 = 12.0;
pub(super) const HEIGHT: f64 = 200.0;
/// Blue, green, plum, black, violet: what was measured.
pub(super) const COLORS: [&str; 5] = ["#0060b0", "#00a078", "#8a1a55", "#1a1a1a", "#8030f0"];
/// Vermilion: what was published, and nothing else.
pub(super) const PUBLISHED: &str = "#d55e00";
/// Gray: bars that are not highlighted, if another is.
pub(super) const BESIDE: &str = "#7a7a7a";
pub(super) const TEXT: &str = "#1a1a1a";
pub(super) const AXIS: &str = "#555555";
pub(super) const GRID: &str = "#dddddd";
/// Text sizes. On a phone of 360 pixels the smaller one appears as 9.
pub(super) const NORMAL: f64 = 13.0;
pub(super) const SMALL: f64 = 12.0;
/// Width of a character relative to the text size, for the wider fonts.
pub(super) const ADVANCE: f64 = 0.61;

/// Escapes text for HTML and SVG.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Approximate width of a text.
pub(super) fn width(text: &str, size: f64) -> f64 {
    ADVANCE * size * text.chars().count() as f64
}

/// Width of the widest text.
pub(super) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>, size: f64) -> f64 {
    texts.into_iter().map(|text| width(text, size)).fold(0.0, f64::max)
}

/// Cuts text off at a width.
pub(super) fn cut_off(text: &str, size: f64, most: f64) -> String {
    let room = (most / (ADVANCE * size)) as usize;
    if text.chars().count() <= room { text.to_owned() } else { text.chars().take(room - 1).chain(['…']).collect() }
}

/// Breaks text into lines of a given width, at spaces and after the hyphens of words.
pub(super) fn wrapped(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut before = ' ';
    let breaks = |c: char| {
        let before = std::mem::replace(&mut before, c);
        c == ' ' || c == '-' && before.is_alphabetic()
    };
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(breaks) {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(part.trim_end(), size) <= most => line.push_str(part),
            _ => lines.push(part.to_owned()),
        }
    }
    lines.iter_mut().for_each(|line| line.truncate(line.trim_end().len()));
    lines
}

/// A drawing in progress, from top to bottom.
pub(super) struct Drawing {
    title: String,
    pub(super) body: String,
    /// The height that is used so far.
    pub(super) top: f64,
}

impl Drawing {
    pub(super) fn new(title: &str) -> Self {
        let mut drawing = Self { title: title.to_owned(), body: String::new(), top: 4.0 };
        for line in wrapped(title, 14.0 * 1.06, WIDTH - 8.0) {
            let y = drawing.top + 13.0;
            let line = escape(&line);
            let _ = write!(
                drawing.body,
                "<text x=\"4\" y=\"{y}\" font-size=\"14\" font-weight=\"600\" fill=\"{TEXT}\">{line}</text>"
            );
            drawing.top += 18.0;
        }
        drawing.top += 4.0;
        drawing
    }

    // Writing to a string cannot fail, here and below.
    pub(super) fn text(&mut self, x: f64, y: f64, anchor: &str, size: f64, text: &str) {
        let text = escape(text);
        let _ = write!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{TEXT}\">{text}</text>"
        );
    }

    /// Writes the value above a bar: upright if it is too wide, and not at all if it is too wide even then.
    pub(super) fn on_bar(&mut self, middle: f64, y: f64, width: f64, upright: bool, value: &str) {
        if !upright {
            self.text(middle, y, "middle", SMALL, value);
        } else if width >= SMALL * 0.9 {
            let x = middle + SMALL / 3.0;
            let _ = write!(
                self.body,
                "<text transform=\"translate({x:.1} {y:.1})rotate(-90)\" font-size=\"{SMALL}\" fill=\"{TEXT}\">{value}</text>"
            );
        }
    }

    pub(super) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        let _ = write!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    /// Draws many rectangles of one color and height. Each has left, top and width.
    pub(super) fn rects(&mut self, height: f64, fill: &str, rects: &[(f64, f64, f64)]) {
        let mut path = String::new();
        for (x, y, width) in rects {
            let _ = write!(path, "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z");
        }
        if !path.is_empty() {
            let _ = write!(self.body, "<path d=\"{path}\" fill=\"{fill}\"/>");
        }
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let _ = write!(
            self.body,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{stroke}\" stroke-width=\"{width}\" fill=\"none\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    pub(super) fn dashed_line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let _ = write!(
            self.body,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{stroke}\" stroke-width=\"{width}\" stroke-dasharray=\"6 4\" fill=\"none\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// Draws an error bar: a line with a short line across each end.
    pub(super) fn error_bar(&mut self, from: (f64, f64), to: (f64, f64)) {
        const HALF: f64 = 3.0;
        let upright = from.0 == to.0;
        let across = if upright { (HALF, 0.0) } else { (0.0, HALF) };
        self.line(from, to, TEXT, 1.0);
        for end in [from, to] {
            self.line((end.0 - across.0, end.1 - across.1), (end.0 + across.0, end.1 + across.1), TEXT, 1.0);
        }
    }

    /// Draws the mark of series `number`: a circle, square, diamond or triangle.
    pub(super) fn mark(&mut self, x: f64, y: f64, number: usize, fill: &str) {
        let path = match number % 4 {
            0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", x - 4.0),
            1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
            2 => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
            _ => format!("M{x:.1} {:.1}l5 9h-10z", y - 5.0),
        };
        let _ = write!(self.body, "<path d=\"{path}\" fill=\"{fill}\"/>");
    }

    /// Draws the legend of colors or marks in as many lines as needed. A single series has no legend.
    pub(super) fn legend(&mut self, series: &[Series], marks: bool) {
        if series.len() < 2 {
            return;
        }
        let mut x = 4.0;
        for ((number, Series { name, .. }), color) in series.iter().enumerate().zip(colors(series)) {
            let needs = 16.0 + width(name, NORMAL);
            if x > 4.0 && x + needs > WIDTH - 4.0 {
                (x, self.top) = (4.0, self.top + 18.0);
            }
            if marks {
                self.mark(x + 5.0, self.top + 7.0, number, color);
            } else {
                self.rect(x, self.top + 2.0, 11.0, 11.0, color);
            }
            self.text(x + 16.0, self.top + 12.0, "start", NORMAL, name);
            x += needs + 14.0;
        }
        self.top += 24.0;
    }

    /// Draws the legend of a dashed line.
    pub(super) fn limit_legend(&mut self, words: &str) {
        self.dashed_line((4.0, self.top + 8.0), (28.0, self.top + 8.0), TEXT, 1.5);
        self.text(34.0, self.top + 12.0, "start", NORMAL, &cut_off(words, NORMAL, WIDTH - 38.0));
        self.top += 22.0;
    }

    /// Draws horizontal lines with values from `low` to `high`. Returns the vertical place of a value, and the lines'
    /// left end.
    pub(super) fn scale(&mut self, low: f64, high: f64, unit: &str) -> (impl Fn(f64) -> f64 + use<>, f64) {
        let (step, top) = (step(high - low), self.top + 6.0);
        let y = move |value: f64| top + HEIGHT * (1.0 - (value - low) / (high - low));
        let decimals = if step >= 1.0 { 0 } else { (-step.log10()).ceil() as usize };
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let ticks: Vec<f64> =
            ((low / step).round() as i64..=(high / step).round() as i64).map(|i| i as f64 * step).collect();
        let labels: Vec<String> = ticks.iter().map(|tick| format!("{tick:.decimals$}{unit}")).collect();
        let left = widest(labels.iter().map(String::as_str), SMALL) + 10.0;
        for (tick, label) in ticks.iter().zip(&labels) {
            let stroke = if tick.abs() < step / 2.0 { AXIS } else { GRID };
            self.line((left, y(*tick)), (WIDTH - RIGHT, y(*tick)), stroke, 1.0);
            self.text(left - 6.0, y(*tick) + 4.0, "end", SMALL, label);
        }
        self.top = top + HEIGHT;
        (y, left)
    }

    /// Writes names below the middles of places, and a common title below them.
    pub(super) fn places(&mut self, names: impl Iterator<Item = (f64, String)>, place_width: f64, of: &str) {
        let mut lines = 0;
        for (middle, name) in names {
            let name = wrapped(&name, SMALL, place_width);
            for (i, line) in name.iter().enumerate() {
                self.text(middle, self.top + 16.0 + 14.0 * i as f64, "middle", SMALL, line);
            }
            lines = lines.max(name.len());
        }
        self.top += 8.0 + 14.0 * lines as f64;
        if !of.is_empty() {
            self.text(WIDTH / 2.0, self.top + 14.0, "middle", NORMAL, of);
            self.top += 18.0;
        }
    }

    /// Writes start, middle and end of a time axis.
    pub(super) fn times(&mut self, left: f64, seconds: f64) {
        for (share, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
            let x = left + (WIDTH - left - RIGHT) * share;
            self.text(x, self.top + 14.0, anchor, SMALL, &format!("{} s", short(seconds * share)));
        }
        self.top += 20.0;
    }

    /// Finishes the SVG. `words` are its figures as text.
    pub(super) fn finish(self, words: &str) -> String {
        let (height, body, title, words) = (self.top + 6.0, self.body, escape(&self.title), escape(words));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" font-family=\"system-ui,sans-serif\" role=\"img\" aria-label=\"{title}\">\
             <title>{title}</title><desc>{words}</desc>\
             <rect width=\"{WIDTH}\" height=\"{height:.0}\" fill=\"#ffffff\"/>{body}</svg>"
        )
    }
}

/// Whether figures of this name are published ones.
pub(super) fn is_published(name: &str) -> bool {
    name.contains("published")
}

/// The color of each series.
pub(super) fn colors(series: &[Series]) -> Vec<&'static str> {
    let mut own = COLORS.into_iter().cycle();
    let color = |series: &Series| if is_published(&series.name) { Some(PUBLISHED) } else { own.next() };
    series.iter().filter_map(color).collect()
}

/// A round step that divides a range into about five parts.
pub(super) fn step(range: f64) -> f64 {
    let raw = (range / 5.0).max(1e-9);
    let magnitude = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * magnitude >= raw * 0.999).unwrap_or(10.0);
    factor * magnitude
}

/// A round range that includes the values and 0.
pub(super) fn range(values: impl Iterator<Item = f64>) -> Range {
    let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let high = if high - low <= 0.0 { 1.0 } else { high };
    let step = step(high - low);
    ((low / step).floor() * step, (high / step).ceil() * step)
}

/// A number with three digits, or a few more.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        0.0..0.001 => "< 0.001".to_owned(),
        0.0..0.1 => format!("{value:.3}"),
        0.1..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
