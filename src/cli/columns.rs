//! Text for people, in lines of at most a hundred columns.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

pub const WIDTH: usize = 100;
/// How far the further lines of one that was too long are set in.
const INDENT: &str = "    ";

/// Words in lines of at most `width` columns, unless a word alone is wider.
pub fn wrap<'a>(words: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut filled = 0;
    for word in words {
        let columns = word.chars().count();
        match lines.last_mut() {
            Some(line) if filled + 1 + columns <= width => {
                line.extend([" ", word]);
                filled += 1 + columns;
            }
            _ => {
                lines.push(word.to_owned());
                filled = columns;
            }
        }
    }
    lines
}

/// A text of one or more lines; what is wider than `width` goes on in further lines, set in.
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.chars().count() <= width {
            lines.push(line.to_owned());
            continue;
        }
        let margin: String = line.chars().take_while(|c| *c == ' ').collect();
        let room = width.saturating_sub(margin.len() + INDENT.len()).max(1);
        // The first line has the room of the indent too; it is not worth a second count.
        let mut rest = wrap(line.split_whitespace(), room).into_iter();
        lines.extend(rest.next().map(|first| format!("{margin}{first}")));
        lines.extend(rest.map(|more| format!("{margin}{INDENT}{more}")));
    }
    lines
}

/// Writes `who: text` to standard error, if it is still there. People at a terminal want lines that
/// fit; a journal and grep want a sentence in one.
pub fn tell(who: &str, text: impl Display) {
    let mut out = format!("{who}: {text}");
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        out = folded(&out, WIDTH).join("\n");
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    let _ = stderr.write_all(out.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded() {
        let check = |text: &str, width, want: &[&str]| {
            assert_eq!(folded(text, width), want, "{text}");
        };
        check("short\n  kept  as it is", 20, &["short", "  kept  as it is"]);
        check("one two three four", 12, &["one two", "    three", "    four"]);
        check("  one two three", 12, &["  one", "      two", "      three"]);
        check("an-endless-word and more", 8, &["an-endless-word", "    and", "    more"]);
        check("grün grün grün", 13, &["grün grün", "    grün"]);
        check("", 5, &[]);
    }
}
