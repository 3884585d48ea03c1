//! The programs inside the simulated containers. What one does is written in its command, so that a
//! manifest tells the whole story: `["app", "run=20s", "exit=1", "term=3s"]`.

use steplet_core::time::Span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// How long it runs by itself; None for ever.
    pub run: Option<Span>,
    pub exit: i32,
    /// Only the first so many attempts end like that; None: all.
    pub crashes: Option<u32>,
    /// Later attempts end well instead of running for ever.
    pub then_ends: bool,
    /// How long it takes to obey TERM; None ignores it.
    pub term: Option<Span>,
    pub term_exit: i32,
    /// How long StartContainer takes on top.
    pub start: Span,
    /// The image has no such program: StartContainer fails.
    pub missing: bool,
    /// What it writes to its termination log at the end.
    pub message: Option<String>,
}

impl Default for App {
    fn default() -> App {
        App {
            run: None,
            exit: 0,
            crashes: None,
            then_ends: false,
            term: Some(Span::from_millis(50)),
            term_exit: 0,
            start: Span::ZERO,
            missing: false,
            message: None,
        }
    }
}

impl App {
    /// Reads a command. Any program but `app` runs for ever and obeys TERM.
    pub fn from_command(command: &[String], attempt: u32) -> App {
        let mut app = App::default();
        if command.first().is_none_or(|program| program != "app") {
            return app;
        }
        for word in &command[1..] {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "run" => app.run = span(value),
                "exit" => app.exit = value.parse().unwrap_or(1),
                "crashes" => app.crashes = value.parse().ok(),
                "then" => app.then_ends = value == "ends",
                "term" => app.term = span(value),
                "term-exit" => app.term_exit = value.parse().unwrap_or(143),
                "start" => app.start = span(value).unwrap_or_default(),
                "missing" => app.missing = true,
                "message" => app.message = Some(value.to_owned()),
                _ => {}
            }
        }
        if app.crashes.is_some_and(|crashes| attempt >= crashes) {
            app.exit = 0;
            if !app.then_ends {
                app.run = None;
            }
        }
        app
    }
}

/// `20s`, `150ms`, `5m`, `2h`; anything else (`ever`, `ignore`) is None.
pub fn span(text: &str) -> Option<Span> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let amount: u64 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "ms" => Some(Span::from_millis(amount)),
        "s" => Some(Span::from_secs(amount)),
        "m" => Some(Span::from_secs(amount.checked_mul(60)?)),
        "h" => Some(Span::from_secs(amount.checked_mul(3_600)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_tells_what_the_program_does() {
        let check = |words: &str, attempt, want: App| {
            let command: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(App::from_command(&command, attempt), want, "{words}");
        };
        check("sh -c run=1s", 0, App::default());
        let crash = App { run: Some(Span::from_secs(20)), exit: 1, ..App::default() };
        check("app run=20s exit=1", 5, crash.clone());
        check("app run=20s exit=1 crashes=2", 1, App { crashes: Some(2), ..crash.clone() });
        check(
            "app run=20s exit=1 crashes=2",
            2,
            App { crashes: Some(2), exit: 0, run: None, ..crash },
        );
        let job = App { run: Some(Span::from_secs(1)), then_ends: true, ..App::default() };
        let job = App { crashes: Some(1), ..job };
        check("app run=1s exit=1 crashes=1 then=ends", 1, job);
        check("app term=ignore", 0, App { term: None, ..App::default() });
    }

    #[test]
    fn spans_have_units() {
        for (text, want) in [
            ("150ms", Some(Span::from_millis(150))),
            ("5m", Some(Span::from_secs(300))),
            ("ever", None),
            ("5", None),
            ("", None),
        ] {
            assert_eq!(span(text), want, "{text}");
        }
    }
}
