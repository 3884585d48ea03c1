//! `steplet tape edit`: a changed copy of a segment.

use super::Failure;
use crate::cli::say;
use crate::shell::tape::edit::{Edit, EditError, edit};
use crate::shell::tape::reader::{Segment, Tape};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

struct Wanted {
    path: PathBuf,
    out: Option<PathBuf>,
    edit: Edit,
}

pub fn main(args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let wanted = parse(args)?;
    let segment = segment_with(&wanted.path, wanted.edit.step)?;
    if wanted.out.is_none() && wanted.path.is_dir() {
        return Err(Failure::Usage(
            "TAPE is a directory, and a copy there would count as a part of it: -o FILE is wanted"
                .into(),
        ));
    }
    let out = wanted.out.unwrap_or_else(|| default_out(&segment.path));
    if out.exists() {
        return Err(Failure::Usage(format!("{} exists", out.display())));
    }
    let unfinished = out.with_added_extension("tmp");
    let mut file = BufWriter::new(create_private(&unfinished)?);
    let result = edit(segment, &wanted.edit, &mut file)
        .and_then(|()| file.flush().map_err(EditError::Write))
        .and_then(|()| fs::rename(&unfinished, &out).map_err(EditError::Write));
    if let Err(error) = result {
        let _ = fs::remove_file(&unfinished);
        return Err(match error {
            EditError::Tape(bad) => Failure::Tape(format!("{}: {bad}", wanted.path.display())),
            EditError::NoStep { first, next } => Failure::Usage(format!(
                "the tape has the steps {first} up to {next}, that one excluded"
            )),
            EditError::Foreign => Failure::Tape("the tape does not decode in this build".into()),
            EditError::Change(why) => Failure::Usage(why),
            EditError::Write(error) => Failure::Output(error),
        });
    }
    say(format_args!("{}\n", out.display()));
    Ok(())
}

/// As all tapes, for its owner only: what a manifest spells out is on it.
fn create_private(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Wanted, Failure> {
    let missing = |what: &str| Failure::Usage(format!("{what} is missing"));
    let mut args = Parser::from_args(args);
    let (mut path, mut step, mut sets, mut out) = (None, None, Vec::new(), None);
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("step") => step = Some(args.value()?.parse()?),
            Arg::Long("set") => sets.push(assignment(&args.value()?.string()?)?),
            Arg::Short('o') => out = Some(PathBuf::from(args.value()?)),
            Arg::Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            arg => return Err(arg.unexpected().into()),
        }
    }
    if sets.is_empty() {
        return Err(missing("--set"));
    }
    let step = step.ok_or_else(|| missing("--step"))?;
    let path = path.ok_or_else(|| missing("TAPE"))?;
    Ok(Wanted { path, out, edit: Edit { step, sets } })
}

fn assignment(text: &str) -> Result<(String, Value), Failure> {
    let (path, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::Usage(format!("{text}: PATH=VALUE is wanted")))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((path.into(), value))
}

/// The segment that has the step: the last one that begins at or before it, as runs begin anew at 0.
fn segment_with(path: &Path, step: u64) -> Result<Segment, Failure> {
    let told = |path: &Path, why: &dyn std::fmt::Display| {
        Failure::Tape(format!("{}: {why}", path.display()))
    };
    let tape = Tape::open(path).map_err(|error| told(path, &error))?;
    let mut found = None;
    for file in &tape.files {
        let segment = Segment::open(file).map_err(|bad| told(file, &bad))?;
        if segment.header.step <= step || tape.files.len() == 1 {
            found = Some(segment);
        }
    }
    found.ok_or_else(|| told(path, &"there is no such step"))
}

fn default_out(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".z").unwrap_or(&name);
    let stem = name.strip_suffix(".tape").unwrap_or(name);
    path.with_file_name(format!("{stem}.edited.tape"))
}
