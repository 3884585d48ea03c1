//! Paths of files as Go's `filepath` treats them on Linux, without asking the file system.

use alloc::string::String;
use alloc::vec::Vec;

/// The shortest path of the same meaning: no `.`, no doubled `/`, `..` taken away where it can be.
pub fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => String::from("/") + &joined,
        (false, true) => ".".into(),
        (false, false) => joined,
    }
}

/// `path` below `directory`, cleaned.
pub fn join(directory: &str, path: &str) -> String {
    clean(&[directory, path].join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaned() {
        let check = |path, want: &str| assert_eq!(clean(path), want, "{path}");
        check("", ".");
        check("/", "/");
        check("/var/log/pods", "/var/log/pods");
        check("/var//log/./pods/", "/var/log/pods");
        check("/var/../../etc", "/etc");
        check("a/../../b", "../b");
        check("./x", "x");
        assert_eq!(join("/etc/kubernetes", "../pki/ca.crt"), "/etc/pki/ca.crt");
        assert_eq!(join("/etc/kubernetes", "manifests/"), "/etc/kubernetes/manifests");
    }
}
