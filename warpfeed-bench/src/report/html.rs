//! A report as one HTML page without other files, network or scripts. In a narrow window each row of a table becomes a
//! block.

use super::{Cell, Plot, Report, ReportTable};
use crate::published::Publication;
use crate::report::plot::escape;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light}\
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#ffffff;margin:0 auto;padding:.75rem;max-width:78.5rem;\
overflow-wrap:anywhere}\
p,ul,dl,.answer{max-width:64rem}\
h1{font-size:1.5rem;line-height:1.2;margin:0}h2{font-size:1.15rem;margin:2rem 0 .5rem}\
.question{color:#444444;margin:.2rem 0 1rem}\
.answer{background:#eef4fb;border-left:.3rem solid #0060b0;padding:.6rem 1rem}.answer p{margin:.3rem 0}\
.answer p:first-child{font-weight:600}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,28rem),1fr));gap:1.5rem;margin:1.5rem 0}\
figure{margin:0}svg{display:block;width:100%;max-width:36rem;height:auto}\
table{border-collapse:collapse;font-size:.9rem}\
th,td{padding:.25rem .5rem;border-bottom:1px solid #d0d0d0;text-align:left;overflow-wrap:normal}\
th{border-bottom:2px solid #555555;vertical-align:bottom}\
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}th.n{white-space:normal}\
.blank{color:#444444;font-size:.9rem;margin:.4rem 0}\
ul{padding-left:1.2rem}\
dl{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;font-size:.85rem}\
dt{display:inline;color:#555555}dd{display:inline;margin:0 0 0 .35rem}\
.warning{background:#f4f4f4;border-left:.3rem solid #1a1a1a;padding:.6rem 1rem;margin:.6rem 0}";

/// Widths of tables, in rem.
const STEPS_REM: [u32; 8] = [22, 30, 38, 46, 54, 62, 70, 78];
/// Width of a character of a table in rem, for the wider fonts.
const CHARACTER_REM: f64 = 0.9 * 0.64;
/// Space around the cells of a column, and around the page.
const BESIDE_CELL_REM: f64 = 0.9;
const BESIDE_PAGE_REM: u32 = 2;
/// Characters after which the words of a cell may go on in the next line.
const LONG: usize = 18;

/// The rules by which tables become blocks: one for each step of their width, and one for tables wider than all of
/// them.
fn blocks() -> String {
    let rules = |step: usize| {
        let t = format!("table.w{step}");
        format!(
            "{t},{t} tbody,{t} tr{{display:block}}{t} thead{{display:none}}\
             {t} tr{{display:flex;flex-wrap:wrap;gap:0 1rem;padding:.35rem 0;border-bottom:1px solid #d0d0d0}}\
             {t} td,{t} td.n{{display:block;border:0;padding:0;text-align:left;white-space:normal}}\
             {t} td::before{{content:attr(data-column) \": \";color:#555555}}"
        )
    };
    let mut css = String::new();
    for (step, rem) in STEPS_REM.iter().enumerate() {
        let _ = write!(css, "@media(max-width:{}rem){{{}}}", rem + BESIDE_PAGE_REM, rules(step));
    }
    css + &rules(STEPS_REM.len())
}

/// The whole HTML page.
pub(super) fn page(report: &Report) -> String {
    let command = if matches!(report.experiment, "tune" | "audit") { "warpfeed" } else { "warpfeed bench" };
    let title = escape(&format!("{command} {}", report.experiment));
    let sentences: String = report.answer.iter().map(|sentence| format!("<p>{}</p>", escape(sentence))).collect();
    let (leading, further) = report.plots.split_at(report.leading_plots.min(report.plots.len()));
    let [leading, further] = [leading, further].map(plots);
    let (first, others) = report.tables.split_at(report.tables.len().min(1));
    let result: String = report.result.iter().map(table).collect();
    let [first, others]: [String; 2] = [first, others].map(|tables| tables.iter().map(table).collect());
    let notes: String = report.notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    let notes = if notes.is_empty() { notes } else { format!("<h2>How to read it</h2><ul>{notes}</ul>\n") };
    let publications: String = report.publications.iter().map(publication).collect();
    let publications =
        if publications.is_empty() { publications } else { format!("<h2>Published</h2><ul>{publications}</ul>\n") };
    let warnings: String = report
        .warnings
        .iter()
        .map(|warning| format!("<p class=\"warning\"><b>Warning:</b> {}</p>\n", escape(warning)))
        .collect();
    let machine = report.environment.lines().into_iter().map(|(name, value)| (name.to_owned(), value));
    let about: String = (report.subject_lines().into_iter().chain(machine))
        .map(|(name, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(&name), escape(&value)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}{blocks}</style></head><body>\n<h1>{title}</h1><p class=\"question\">{question}</p>\n\
         {warnings}<dl>{about}</dl>\n<div class=\"answer\">{sentences}</div>\n{result}{leading}{first}{further}{others}{notes}{publications}</body></html>\n",
        question = escape(report.question),
        blocks = blocks(),
    )
}

fn publication(publication: &Publication) -> String {
    let Publication { title, url, about } = *publication;
    format!("<li><a href=\"{}\">{}</a>. {}</li>", escape(url), escape(title), escape(about))
}

fn plots(plots: &[Plot]) -> String {
    let figures: String = plots.iter().map(|plot| format!("<figure>{}</figure>\n", plot.svg)).collect();
    if figures.is_empty() { figures } else { format!("<div class=\"plots\">{figures}</div>\n") }
}

/// Number of the step of a table's width. It is as wide as its words, except that long texts, and the names of columns,
/// go on in the next line.
fn step(table: &ReportTable, shown: &[usize]) -> usize {
    let longest = |text: &str| text.split([' ', '-']).map(|word| word.chars().count() + 1).max().unwrap_or(0);
    let of_cell = |cell: &Cell| match cell {
        Cell::Text(text) => longest(text).max(text.chars().count().min(LONG)),
        cell => cell.text().chars().count(),
    };
    let of_column = |&column: &usize| {
        let cells = table.rows.iter().map(|row| of_cell(&row[column])).max().unwrap_or(0);
        cells.max(longest(&table.columns[column])) as f64 * CHARACTER_REM + BESIDE_CELL_REM
    };
    let rem: f64 = shown.iter().map(of_column).sum();
    STEPS_REM.iter().take_while(|&&step| f64::from(step) < rem).count()
}

fn table(table: &ReportTable) -> String {
    // A column without figures is aligned like numeric ones.
    let is_number = |column: usize| !table.rows.iter().any(|row| matches!(row[column], Cell::Text(_)));
    let class = |column| if is_number(column) { " class=\"n\"" } else { "" };
    let shown = table.shown();
    let head: String = (shown.iter())
        .map(|&column| format!("<th scope=\"col\"{}>{}</th>", class(column), escape(&table.columns[column])))
        .collect();
    let cell = |row: &[Cell], column: usize| {
        let text = if row[column] == Cell::Blank { "–".to_owned() } else { escape(&row[column].text()) };
        format!("<td{} data-column=\"{}\">{text}</td>", class(column), escape(&table.columns[column]))
    };
    let row = |row: &Vec<Cell>| {
        let cells: String = shown.iter().map(|&column| cell(row, column)).collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = table.rows.iter().map(row).collect();
    let title = escape(&table.title);
    let blank: String =
        table.blank.iter().map(|reason| format!("<p class=\"blank\">Blank (–): {}</p>\n", escape(reason))).collect();
    let step = step(table, &shown);
    format!(
        "<h2>{title}</h2><table class=\"w{step}\"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>\n{blank}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_wider_than_the_window_becomes_blocks() {
        let columns: Vec<String> = (0..20).map(|i| format!("column {i}")).collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let of = |count: usize, text: &str| {
            let mut table = ReportTable::new("t", "T", &columns[..count]);
            table.rows.push(vec![text.into(); count]);
            step(&table, &(0..count).collect::<Vec<_>>())
        };
        assert_eq!(of(1, "1.5"), 0);
        assert!((2..STEPS_REM.len()).contains(&of(8, "1.5")), "{}", of(8, "1.5"));
        assert_eq!(of(20, "1.5"), STEPS_REM.len(), "wider than every window");
        assert!(of(4, "not distinguishable (3.1 % slower to 2.0 % faster)") < 4, "long texts go on in the next line");
        let css = blocks();
        assert_eq!(css.matches("@media").count(), STEPS_REM.len());
        assert!(css.ends_with('}') && css.matches('{').count() == css.matches('}').count(), "{css}");
    }
}
