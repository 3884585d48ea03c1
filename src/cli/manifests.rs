//! The manifests that `steplet run` was given: which files they are, and how their user calls them.

use crate::shell::doors::make_dirs;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Each manifest under a name of its own, with its path as the user gave it.
pub struct Manifests(BTreeMap<OsString, PathBuf>);

/// How the user calls the files that the agent sees under names of its own.
#[derive(Default)]
pub struct Names {
    /// Paths as the agent has them, longest first, and as the user has them.
    paths: Vec<(String, String)>,
    dir: String,
}

impl Names {
    /// A text of the agent, with the user's names in place of its own.
    pub fn told(&self, text: &str) -> String {
        self.paths.iter().fold(text.to_owned(), |text, (own, users)| text.replace(own, users))
    }

    /// The user's path of a file of the agent's manifest directory.
    pub fn file(&self, name: &str) -> String {
        self.told(&format!("{}/{name}", self.dir))
    }
}

impl Manifests {
    /// Those that the files and directories stand for. A file that is named twice counts once.
    ///
    /// # Errors
    /// A sentence for people: a file that is not there, or nothing to run.
    pub fn find(files: &[PathBuf]) -> Result<Manifests, String> {
        let mut all = Vec::new();
        for file in files {
            if fs::metadata(file).map_err(|error| at(file, &error))?.is_dir() {
                for entry in fs::read_dir(file).map_err(|error| at(file, &error))? {
                    all.push(entry.map_err(|error| at(file, &error))?.path());
                }
            } else {
                all.push(file.clone());
            }
        }
        all.retain(|path| path.is_file() && !is_hidden(path));
        all.sort();
        let mut seen = Vec::new();
        let mut named = BTreeMap::new();
        for (index, file) in all.into_iter().enumerate() {
            let real = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            if several_documents(&file) {
                return Err(format!(
                    "{} holds several documents, and only the first would count: give each Pod a \
                     file",
                    file.display()
                ));
            }
            let mut name = file.file_name().unwrap_or_default().to_owned();
            if named.contains_key(&name) {
                // Two directories can hold files of one name.
                name = format!("{index}-{}", name.display()).into();
            }
            named.insert(name, file);
        }
        if named.is_empty() {
            return Err("there is no manifest among the files".into());
        }
        Ok(Manifests(named))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&OsString, &PathBuf)> {
        self.0.iter()
    }

    /// Fills the node's own manifest directory with links, so that a change of a file is seen.
    ///
    /// # Errors
    /// A sentence for people.
    pub fn link(&self, dir: &Path) -> Result<(), String> {
        make_dirs(dir, 0o750).map_err(|fault| fault.message)?;
        unlink_all(dir)?;
        for (name, file) in &self.0 {
            let link = dir.join(name);
            let file = std::path::absolute(file).map_err(|error| at(file, &error))?;
            symlink(file, &link).map_err(|error| at(&link, &error))?;
        }
        Ok(())
    }

    /// What the agent says of `dir` in the user's words.
    pub fn names(&self, dir: &Path) -> Names {
        let shown = |path: &Path| path.display().to_string();
        let mut names: Vec<(String, String)> =
            self.0.iter().map(|(name, file)| (shown(&dir.join(name)), shown(file))).collect();
        // A name that begins as another one does goes first.
        names.sort_by_key(|(own, _)| std::cmp::Reverse(own.len()));
        Names { paths: names, dir: shown(dir) }
    }
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Takes away the links of an earlier run. Whatever else lies there is somebody's work, and stays.
fn unlink_all(dir: &Path) -> Result<(), String> {
    let mut links = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| at(dir, &error))? {
        let path = entry.map_err(|error| at(dir, &error))?.path();
        if !path.is_symlink() {
            return Err(format!(
                "{} is no link of an earlier run: move it away, or name another --root-dir",
                path.display()
            ));
        }
        links.push(path);
    }
    links.iter().try_for_each(|path| fs::remove_file(path).map_err(|error| at(path, &error)))
}

/// Whether something other than comments comes after a line `---` that has something before it.
fn several_documents(file: &Path) -> bool {
    let Ok(text) = fs::read_to_string(file) else { return false };
    let mut documents = 0;
    let mut fresh = true;
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            fresh = true;
        } else if fresh && !line.trim().is_empty() && !line.starts_with(['#', '%']) {
            documents += 1;
            fresh = false;
        }
    }
    documents > 1
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    #[test]
    fn only_links_are_taken_away() {
        let scratch = Scratch::new("run-links");
        let dir = scratch.path().join("run-manifests");
        let (a, b) = (scratch.path().join("a.yaml"), scratch.path().join("b.yaml"));
        fs::write(&a, "kind: Pod\n").unwrap();
        fs::write(&b, "kind: Pod\n").unwrap();
        let link = |file: &PathBuf| Manifests::find(std::slice::from_ref(file)).unwrap().link(&dir);
        link(&a).unwrap();
        link(&b).unwrap();
        assert!(!dir.join("a.yaml").is_symlink() && a.is_file());
        assert_eq!(fs::read_link(dir.join("b.yaml")).unwrap(), b);
        fs::write(dir.join("real.yaml"), "kind: Pod\n").unwrap();
        let refused = link(&a).unwrap_err();
        assert!(refused.contains("real.yaml"), "{refused}");
        assert!(dir.join("real.yaml").is_file() && dir.join("b.yaml").is_symlink());
    }

    #[test]
    fn documents_are_counted() {
        let path = std::env::temp_dir().join(format!("steplet-documents-{}", std::process::id()));
        let check = |text: &str, want| {
            fs::write(&path, text).unwrap();
            assert_eq!(several_documents(&path), want, "{text:?}");
        };
        check("kind: Pod\n", false);
        check("# a comment\n---\nkind: Pod\n---\n# nothing more\n", false);
        check("kind: Pod\n---\nkind: Pod\n", true);
        check("--- # first\na: 1\n--- # second\nb: 2\n", true);
        check("text: |\n  ---\n  more\n", false);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_users_names() {
        let scratch = Scratch::new("run-names");
        let file = scratch.path().join("web.yaml");
        fs::write(&file, "kind: Pod\n").unwrap();
        let twice = [file.clone(), scratch.path().join("./web.yaml")];
        let manifests = Manifests::find(&twice).unwrap();
        assert_eq!(manifests.iter().count(), 1);
        let names = manifests.names(Path::new("/own"));
        assert_eq!(names.file("web.yaml"), file.display().to_string());
        assert_eq!(names.told("/own/web.yaml: no"), format!("{}: no", file.display()));
        let none = scratch.path().join("none.yaml");
        assert!(Manifests::find(&[none]).is_err_and(|why| why.contains("none.yaml")));
    }
}
