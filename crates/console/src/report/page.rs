//! The parts that all reports have: head, sections, tables, and how to make the report again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::chart::{LineChart, line_sample};
use crate::checksum;
use crate::failure::Failure;
use crate::table::{Alignment, Table};

/// How a report was made.
pub struct Origin<'a> {
    /// The files that the command read.
    pub inputs: Vec<PathBuf>,
    /// The arguments of the command.
    pub command: Vec<String>,
    /// The version of the command.
    pub version: &'a str,
}

/// A page under construction.
pub struct Page {
    html: String,
}

impl Page {
    /// A page with a title, and a description as lines of text.
    pub fn new(title: &str, caption: &str, origin: &Origin<'_>) -> Page {
        let title = escape(title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{}</style>\n\
             </head>\n<body>\n<main>\n<h1>{title}</h1>\n",
            include_str!("style.css")
        );
        for line in caption.lines().filter(|line| !line.is_empty()) {
            let _ = writeln!(html, "<p>{}</p>", code(&without_folders(line, &origin.inputs)));
        }
        Page { html }
    }

    /// Adds a section with a body in HTML.
    pub fn add_section(&mut self, title: &str, body: &str) {
        let _ = write!(self.html, "<section>\n<h2>{title}</h2>\n{body}</section>\n");
    }

    /// The page with its origin, and a note below it.
    ///
    /// # Errors
    /// If an input cannot be read again.
    pub fn finish(mut self, origin: &Origin<'_>, note: &str) -> Result<String, Failure> {
        let body = format!("{}<p class=\"note\">{}</p>\n", origin_list(origin)?, escape(note));
        self.add_section("How to make this report again", &body);
        Ok(self.html + "</main>\n</body>\n</html>\n")
    }
}

/// Text without characters that HTML interprets.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Text with names between backquotes, as HTML.
pub fn code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) })
        .collect()
}

/// Replaces the paths of files by their names.
fn without_folders(text: &str, files: &[PathBuf]) -> String {
    files
        .iter()
        .fold(text.to_owned(), |text, file| text.replace(&file.display().to_string(), &file_name(file)))
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// A figure, with its text for readers who do not see it.
pub fn figure(chart: &LineChart<'_>, alternative: &str, caption: &str) -> String {
    match chart.to_svg() {
        Some(svg) => format!(
            "<figure>\n<div role=\"img\" aria-label=\"{alternative}\">{svg}</div>\n\
             <figcaption>{caption}</figcaption>\n</figure>\n"
        ),
        None => "<p class=\"note\">There are no such values.</p>\n".to_owned(),
    }
}

/// The styles of lines, by name.
pub fn legend(names: &[String]) -> String {
    let item = |(position, name): (usize, &String)| {
        format!("<li>{}<code>{}</code></li>\n", line_sample(position), escape(name))
    };
    format!("<ul class=\"legend\">\n{}</ul>\n", names.iter().enumerate().map(item).collect::<String>())
}

/// A table. The first cell of each row names the row.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head = head.iter().map(|title| format!("<th scope=\"col\">{}</th>", escape(title)));
    let row = |row: &Vec<String>| {
        let cells: String = row.iter().skip(1).map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        format!("<tr><th scope=\"row\"><code>{}</code></th>{cells}</tr>\n", escape(&row[0]))
    };
    table_element(head.len(), &head.collect::<String>(), &rows.iter().map(row).collect::<String>())
}

/// A table with the alignments of its columns. Names between backquotes are code.
pub fn aligned_table(table: &Table) -> String {
    let class = |column: usize| match table.alignments()[column] {
        Alignment::Left => " class=\"text\"",
        Alignment::Right => " class=\"number\"",
    };
    let head = table.header().iter().enumerate();
    let head: String = head
        .filter(|_| table.has_header())
        .map(|(column, title)| format!("<th scope=\"col\"{}>{}</th>", class(column), code(title)))
        .collect();
    let row = |row: &Vec<String>| {
        let cells = row.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("<td{}>{}</td>", class(column), code(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    table_element(table.header().len(), &head, &table.rows().iter().map(row).collect::<String>())
}

/// A table with more columns than this is printed in landscape format.
const MAX_PORTRAIT_COLUMNS: usize = 9;

/// A table that scrolls if it is wider than the window.
fn table_element(columns: usize, head: &str, rows: &str) -> String {
    let class = if columns > MAX_PORTRAIT_COLUMNS { "table wide" } else { "table" };
    let head = if head.is_empty() { String::new() } else { format!("<thead><tr>{head}</tr></thead>\n") };
    format!("<div class=\"{class}\"><table>\n{head}<tbody>\n{rows}</tbody>\n</table></div>\n")
}

/// The command, the version and the inputs.
fn origin_list(origin: &Origin<'_>) -> Result<String, Failure> {
    let arg = |arg: &String| {
        let arg = without_folders(arg, &origin.inputs);
        // An option's value can follow a `=`.
        let option = arg.split_once('=').filter(|(option, _)| option.starts_with("--"));
        let (option, value) = option.map_or(("", &*arg), |(option, value)| (option, value));
        // A path has a folder that exists, unlike a value such as 4/2/1.
        let path = Path::new(value);
        let is_path = path.parent().is_some_and(|parent| !parent.as_os_str().is_empty() && parent.is_dir());
        let name = if is_path { file_name(path) } else { value.to_owned() };
        quoted(&if option.is_empty() { name } else { format!("{option}={name}") })
    };
    let command = origin.command.iter().map(arg).collect::<Vec<_>>().join(" ");
    let mut out = format!(
        "<pre>weir {}</pre>\n<p>Files are named without their folders. weir {}</p>\n<ul>\n",
        escape(&command),
        origin.version
    );
    for input in &origin.inputs {
        let sum = checksum::hash_file(input)?;
        let _ =
            writeln!(out, "<li><code>{}</code>: SHA-256 <code>{sum}</code></li>", escape(&file_name(input)));
    }
    out += "</ul>\n";
    Ok(out)
}

/// An argument as a shell reads it.
fn quoted(arg: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !arg.is_empty() && arg.chars().all(is_plain) {
        true => arg.to_owned(),
        false => format!("'{}'", arg.replace('\'', "'\\''")),
    }
}
