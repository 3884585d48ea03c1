//! `--help`: one screen of what matters, then the mirrors of the configuration file.

use super::KubeletFlags;
use super::table::{FLAGS, Flag, Group, Kind, To};
use crate::cli::columns::{WIDTH, wrap};
use std::fmt::Write;
use steplet_api::config::{GoDuration, KubeletConfiguration, Support};

const INTRO: &str = "\
Runs the pods of this node: those of manifests in a directory or at a URL. Takes the command line
and the configuration of the Kubernetes kubelet.

Usage: steplet kubelet [flags]

Fields of a KubeletConfiguration are written in a file, as YAML or JSON:

    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    staticPodPath: /etc/kubernetes/manifests

Defaults, then --config, then the *.conf files of --config-dir, then flags: the last one wins.
Brackets show the field and its default without --config. What has no effect yet has a *; such
flags and fields are named in a warning at start, and those that promise something are refused.
What is wrong ends the program with exit status 1, as the kubelet's does, and all of it is told.
";

/// The whole text, at most 100 columns wide.
pub fn help() -> String {
    let mut out = INTRO.to_owned();
    for (group, title) in [
        (Group::Files, "Files and directories"),
        (Group::Node, "The node"),
        (Group::Logging, "Logging"),
        (Group::Tape, "Recording"),
        (Group::Offline, "Without the API server"),
        (Group::Other, "Others"),
        (Group::Config, "Flags that set a field of the configuration; better written in the file"),
        (Group::Old, "Flags that are only read, so that old command lines still start"),
    ] {
        out.push('\n');
        let _ = writeln!(out, "{title}:");
        for flag in FLAGS.iter().filter(|flag| flag.group == group) {
            describe(flag, &mut out);
        }
    }
    out
}

/// Where the words begin.
const COLUMN: usize = 34;

/// A line or two: the flag, what it is for, its field and default.
fn describe(flag: &Flag, out: &mut String) {
    let dashes = if flag.name.len() == 1 { " -" } else { "--" };
    let short = flag.short.map_or(String::new(), |short| format!("-{short}, "));
    let left = format!("  {short}{dashes}{}{}", flag.name, value_word(flag.kind));
    let facts = facts(flag);
    // The facts stay together where they fit in a line.
    let most = if facts.len() > WIDTH - COLUMN { usize::MAX } else { 1 };
    let facts = facts.splitn(most, ' ').filter(|part| !part.is_empty());
    let words = flag.help.split_whitespace().chain(facts);
    let mut lines = wrap(words, WIDTH - COLUMN).into_iter();
    let beside = if left.len() + 2 > COLUMN { None } else { lines.next() };
    let _ = match beside {
        Some(line) => writeln!(out, "{left:<COLUMN$}{line}"),
        None => writeln!(out, "{left}"),
    };
    for line in lines {
        let _ = writeln!(out, "{:COLUMN$}{line}", "");
    }
}

/// `[maxPods = 110]`: the field, the default, and whether the flag has an effect already.
fn facts(flag: &Flag) -> String {
    let (field, honoured) = match flag.to {
        To::Config(path) => {
            let support = KubeletConfiguration::support(path);
            (path, !matches!(support, Some(Support::NotYet | Support::Refused)))
        }
        _ => ("", flag.honoured),
    };
    let default = default_of(flag);
    let joint = if field.is_empty() || default.is_empty() { "" } else { " = " };
    let mut facts = [field, joint, &default].concat();
    if !facts.is_empty() {
        facts = format!("[{facts}]");
    }
    if !honoured {
        facts.push_str(if facts.is_empty() { "*" } else { " *" });
    }
    facts
}

fn value_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool | Kind::Version => "",
        Kind::Text => " TEXT",
        Kind::Int32 | Kind::Int64 | Kind::Level => " N",
        Kind::Duration => " TIME",
        Kind::Ip => " IP",
        Kind::List => " A,B",
        Kind::Map | Kind::Pair => " K=V",
        Kind::Thresholds => " S<V",
        Kind::BoolMap => " K=BOOL",
        Kind::Headers => " K:V",
        Kind::Taints => " TAINT",
        Kind::ReservedMemory => " N:K=V",
        Kind::Quantity => " SIZE",
        Kind::VModule => " P=N",
    }
}

/// As the flag would be written, empty when nothing is the default.
fn default_of(flag: &Flag) -> String {
    let mut flags = KubeletFlags::default();
    match flag.to {
        To::Config(path) => KubeletConfiguration::legacy().shown(path),
        To::Text(field) => field(&mut flags).clone(),
        To::Number(field) => field(&mut flags).to_string(),
        To::Span(field) if *field(&mut flags) != GoDuration::default() => {
            field(&mut flags).to_string()
        }
        To::Bytes(field) => format!("{}Mi", *field(&mut flags) >> 20),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_and_names_every_flag() {
        let text = help();
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH && line == line.trim_end(), "{line}");
        }
        for flag in FLAGS {
            let name =
                if flag.name.len() == 1 { "-v N".into() } else { format!("--{}", flag.name) };
            assert!(text.contains(&name), "{name}");
        }
        assert!(text.contains("[maxPods = 110]"), "{text}");
        assert!(text.contains("[/var/lib/kubelet]"));
        assert!(text.contains("[64Mi]"));
    }
}
