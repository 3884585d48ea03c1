//! Files and directories below a root that people may look at (`/var/log`), by paths that they choose.
//!
//! Links are followed while they stay below the root: `/var/log/containers` is full of them. Upstream follows all, so
//! that a pod which may write there can show any file of the node (CVE-2017-1002101 and its kin).

use crate::shell::doors::reason;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Names of a directory that are shown.
const NAMES_MAX: usize = 4_096;

pub enum Found {
    File(File),
    /// A page with the names.
    Directory(String),
}

/// What is there. Errors: the status of HTTP, and a text for people.
pub fn look(root: &str, path: &str) -> Result<Found, (u16, String)> {
    let told = |error: io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => (404, "404 page not found".to_owned()),
        ErrorKind::PermissionDenied => (403, "403 Forbidden".to_owned()),
        _ => (500, format!("cannot open {path:?}: {}", reason(&error))),
    };
    let root = fs::canonicalize(root).map_err(told)?;
    let place = fs::canonicalize(root.join(path)).map_err(told)?;
    let Ok(inner) = place.strip_prefix(&root) else {
        return Err((403, format!("403 Forbidden: {path:?} leads out of {}", root.display())));
    };
    // Between the look and the opening somebody may put a link there, which is then not followed.
    let inner = if inner.as_os_str().is_empty() { Path::new(".") } else { inner };
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let within = File::open(&root).map_err(told)?;
    let opened = openat2(&within, inner, OpenHow::new().flags(flags).resolve(resolve));
    let file = File::from(opened.map_err(|errno| told(errno.into()))?);
    let kind = file.metadata().map_err(told)?.file_type();
    match kind {
        _ if kind.is_file() => Ok(Found::File(file)),
        _ if kind.is_dir() => Ok(Found::Directory(page(&place).map_err(told)?)),
        _ => Err((403, format!("403 Forbidden: {path:?} is neither a file nor a directory"))),
    }
}

/// The names of a directory as Go's file server shows them.
fn page(dir: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)?.flatten().take(NAMES_MAX) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        names.push(if is_dir { format!("{name}/") } else { name });
    }
    names.sort();
    let mut page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n\
                    <pre>\n"
        .to_owned();
    for name in names {
        let (link, shown) = (escaped_link(&name), escaped_text(&name));
        let _ = writeln!(page, "<a href=\"{link}\">{shown}</a>");
    }
    page.push_str("</pre>\n");
    Ok(page)
}

fn escaped_link(name: &str) -> String {
    let mut link = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                link.push(byte.into());
            }
            _ => drop(write!(link, "%{byte:02X}")),
        }
    }
    // A name with a colon would be read as another scheme's.
    if name.contains(':') { format!("./{link}") } else { link }
}

fn escaped_text(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use nix::sys::stat::Mode;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_lies_below_is_shown_and_nothing_else() {
        let scratch = Scratch::new("below");
        let root = scratch.path().join("log");
        fs::create_dir_all(root.join("pods/a:b")).expect("made");
        fs::write(root.join("pods/a:b/0.log"), "words").expect("written");
        fs::write(scratch.path().join("shadow"), "secret").expect("written");
        symlink(root.join("pods/a:b/0.log"), root.join("inside")).expect("linked");
        symlink("../shadow", root.join("outside")).expect("linked");
        symlink("/", root.join("everything")).expect("linked");
        symlink("loop", root.join("loop")).expect("linked");
        nix::unistd::mkfifo(&root.join("fifo"), Mode::S_IRUSR).expect("made");
        let check = |path: &str, want: Result<&str, u16>| {
            let found = look(root.to_str().expect("UTF-8"), path);
            let got = found.map_err(|(status, _)| status).map(|found| match found {
                Found::Directory(page) => page,
                Found::File(mut file) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text).expect("text");
                    text
                }
            });
            match want {
                Ok(part) => {
                    assert!(got.as_ref().is_ok_and(|it| it.contains(part)), "{path}: {got:?}")
                }
                Err(status) => assert_eq!(got, Err(status), "{path}"),
            }
        };
        check("pods/a:b/0.log", Ok("words"));
        check("inside", Ok("words"));
        check("", Ok("<a href=\"pods/\">pods/</a>\n"));
        check("pods", Ok("<a href=\"./a%3Ab/\">a:b/</a>\n"));
        check("nothing", Err(404));
        check("inside/below", Err(404));
        check("outside", Err(403));
        check("everything/etc/passwd", Err(403));
        check("../shadow", Err(403));
        check("/etc/passwd", Err(403));
        check("fifo", Err(403));
        check("loop", Err(500));
    }
}
