//! A report as one HTML page without other files, network or scripts.

use super::{Cell, Plot, Report, ReportTable};
use crate::experiment::published::Publication;
use crate::experiment::report::plot::escape;

const STYLE: &str = "\
:root{color-scheme:light}\
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#ffffff;margin:0 auto;padding:.75rem;max-width:64rem;\
overflow-wrap:anywhere}\
h1{font-size:1.5rem;line-height:1.2;margin:0}h2{font-size:1.15rem;margin:2rem 0 .5rem}\
.question{color:#444444;margin:.2rem 0 1rem}\
.answer{background:#eef4fb;border-left:.3rem solid #0060b0;padding:.6rem 1rem}.answer p{margin:.3rem 0}\
.answer p:first-child{font-weight:600}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,28rem),1fr));gap:1.5rem;margin:1.5rem 0}\
figure{margin:0}svg{display:block;width:100%;max-width:36rem;height:auto}\
.wide{overflow-x:auto}\
table{border-collapse:collapse;font-size:.9rem}\
th,td{padding:.25rem .5rem;border-bottom:1px solid #d0d0d0;text-align:left}td{white-space:nowrap}\
th{border-bottom:2px solid #555555;vertical-align:bottom;overflow-wrap:normal;min-width:3.5rem}\
th:first-child,td:first-child{position:sticky;left:0;background:#ffffff}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
.blank{color:#444444;font-size:.9rem;margin:.4rem 0}\
ul{padding-left:1.2rem}\
dl{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;font-size:.85rem}\
dt{display:inline;color:#555555}dd{display:inline;margin:0 0 0 .35rem}\
.warning{background:#fff4e0;border-left:.3rem solid #b05a00;padding:.6rem 1rem;margin:.6rem 0}";

/// The whole HTML page.
pub(super) fn page(report: &Report) -> String {
    let command = if report.experiment == "tune" { "warpfeed" } else { "warpfeed bench" };
    let title = escape(&format!("{command} {}", report.experiment));
    let sentences: String = report.answer.iter().map(|sentence| format!("<p>{}</p>", escape(sentence))).collect();
    let (leading, further) = report.plots.split_at(report.leading_plots.min(report.plots.len()));
    let [leading, further] = [leading, further].map(plots);
    let (first, others) = report.tables.split_at(report.tables.len().min(1));
    let [first, others]: [String; 2] = [first, others].map(|tables| tables.iter().map(table).collect());
    let notes: String = report.notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    let notes = if notes.is_empty() { notes } else { format!("<h2>How to read it</h2><ul>{notes}</ul>\n") };
    let publications: String = report.publications.iter().map(publication).collect();
    let publications =
        if publications.is_empty() { publications } else { format!("<h2>Published</h2><ul>{publications}</ul>\n") };
    let warnings: String =
        report.warnings.iter().map(|warning| format!("<p class=\"warning\">{}</p>\n", escape(warning))).collect();
    let machine = report.environment.lines().into_iter().map(|(name, value)| (name.to_owned(), value));
    let about: String = (report.subject_lines().into_iter().chain(machine))
        .map(|(name, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(&name), escape(&value)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1><p class=\"question\">{question}</p>\n\
         {warnings}<dl>{about}</dl>\n<div class=\"answer\">{sentences}</div>\n{leading}{first}{further}{others}{notes}{publications}</body></html>\n",
        question = escape(report.question),
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

fn table(table: &ReportTable) -> String {
    // A column without figures is aligned like numeric ones.
    let is_number = |column: usize| !table.rows.iter().any(|row| matches!(row[column], Cell::Text(_)));
    let class = |column| if is_number(column) { " class=\"n\"" } else { "" };
    let shown = table.shown();
    let head: String = (shown.iter())
        .map(|&column| format!("<th scope=\"col\"{}>{}</th>", class(column), escape(&table.columns[column])))
        .collect();
    let row = |row: &Vec<Cell>| {
        let text = |cell: &Cell| if *cell == Cell::Blank { "–".to_owned() } else { escape(&cell.text()) };
        let cells: String =
            (shown.iter()).map(|&column| format!("<td{}>{}</td>", class(column), text(&row[column]))).collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = table.rows.iter().map(row).collect();
    let title = escape(&table.title);
    let blank: String =
        table.blank.iter().map(|reason| format!("<p class=\"blank\">Blank (–): {}</p>\n", escape(reason))).collect();
    // Scrollable parts must be reachable by keyboard.
    format!(
        "<h2>{title}</h2><div class=\"wide\" role=\"region\" aria-label=\"{title}\" tabindex=\"0\"><table><thead>\
         <tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n{blank}"
    )
}
