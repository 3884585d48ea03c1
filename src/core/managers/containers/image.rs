//! Names of images: how they are read, what is added when something is left out, and as whom an
//! image runs.
//!
//! Upstream: distribution/reference (grammar and error texts), pkg/util/parsers and
//! pkg/kubelet/images (default tag), v1.36; contract.md 5.5.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};
use steplet_api::container::pull_policy;
use steplet_api::cri;

const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
const NAME_BYTES_MAX: usize = 255;
const TAG_BYTES_MAX: usize = 128;

/// The reason of a container whose image has no good name.
pub const INVALID_IMAGE_NAME: &str = "InvalidImageName";

/// A reference to an image, with the registry and `library/` filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName {
    /// `docker.io/library/busybox`
    pub repository: String,
    pub tag: Option<String>,
    /// `sha256:...`
    pub digest: Option<String>,
}

/// What is wrong with a reference. The texts are those of the reference parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadImageName {
    Format,
    /// 64 hexadecimal digits: an image id and no name.
    Id(String),
    Uppercase(String),
    TooLong,
    DigestAlgorithm,
    DigestLength,
    DigestFormat,
}

impl core::fmt::Display for BadImageName {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            BadImageName::Format => out.write_str("invalid reference format"),
            BadImageName::Id(name) => write!(
                out,
                "invalid repository name ({name}), cannot specify 64-byte hexadecimal strings"
            ),
            BadImageName::Uppercase(name) => {
                write!(out, "invalid reference format: repository name ({name}) must be lowercase")
            }
            BadImageName::TooLong => {
                write!(out, "repository name must not be more than {NAME_BYTES_MAX} characters")
            }
            BadImageName::DigestAlgorithm => out.write_str("unsupported digest algorithm"),
            BadImageName::DigestLength => out.write_str("invalid checksum digest length"),
            BadImageName::DigestFormat => out.write_str("invalid checksum digest format"),
        }
    }
}

impl ImageName {
    pub fn parse(image: &str) -> Result<ImageName, BadImageName> {
        if image.len() == 64 && image.bytes().all(is_lower_hex) {
            return Err(BadImageName::Id(image.to_string()));
        }
        let (domain, rest) = split_domain(image);
        let path = rest.split(':').next().unwrap_or_default();
        if path.chars().any(char::is_uppercase) {
            return Err(BadImageName::Uppercase(path.to_string()));
        }
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (&*rest, None),
        };
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        let good_path = path.split('/').all(is_path_component);
        let good_domain = is_domain(domain) || is_path_component(domain);
        if !good_path || !good_domain || !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
            return Err(BadImageName::Format);
        }
        if path.len() > NAME_BYTES_MAX {
            return Err(BadImageName::TooLong);
        }
        if let Some(digest) = digest {
            check_digest(digest)?;
        }
        Ok(ImageName {
            repository: format!("{domain}/{path}"),
            tag: tag.map(str::to_string),
            digest: digest.map(str::to_string),
        })
    }
}

/// The image as it is asked for from the runtime: with the tag `latest` when it has neither tag nor
/// digest. The error is the message of a container that waits with `INVALID_IMAGE_NAME`.
pub fn with_default_tag(image: &str) -> Result<Cow<'_, str>, String> {
    let name = ImageName::parse(image).map_err(|error| {
        format!(
            "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: \
             {error}"
        )
    })?;
    if name.tag.is_some() || name.digest.is_some() {
        return Ok(Cow::Borrowed(image));
    }
    Ok(Cow::Owned(format!("{}:{DEFAULT_TAG}", name.repository)))
}

/// The pull policy of a container that names none: what `latest` means may change any time.
pub fn default_pull_policy(image: &str) -> &'static str {
    let latest = ImageName::parse(image).is_ok_and(|name| match (&name.tag, &name.digest) {
        (None, None) => true,
        (tag, _) => tag.as_deref() == Some(DEFAULT_TAG),
    });
    if latest { pull_policy::ALWAYS } else { pull_policy::IF_NOT_PRESENT }
}

/// As whom an image runs when the pod does not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageUser {
    Uid(i64),
    /// A name of the image's own /etc/passwd.
    Name(String),
}

/// The user of an image by the runtime's status of it; root when it does not say.
pub fn image_user(image: &cri::Image) -> ImageUser {
    match &image.uid {
        Some(uid) => ImageUser::Uid(uid.value),
        None if !image.username.is_empty() => ImageUser::Name(image.username.clone()),
        None => ImageUser::Uid(0),
    }
}

/// The registry, and the rest with `library/` before names of docker.io that have one part.
fn split_domain(image: &str) -> (&str, Cow<'_, str>) {
    let is_registry = |first: &str| {
        first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase)
    };
    let (domain, rest) = match image.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (DEFAULT_DOMAIN, image),
    };
    let domain = if domain == "index.docker.io" { DEFAULT_DOMAIN } else { domain };
    if domain == DEFAULT_DOMAIN && !rest.contains('/') {
        return (domain, Cow::Owned(format!("library/{rest}")));
    }
    (domain, Cow::Borrowed(rest))
}

/// A host name or bracketed IPv6 address, with an optional port.
fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[').and_then(|d| d.split_once(']')) {
        Some((address, port)) => {
            let good = |b: u8| b.is_ascii_hexdigit() || b == b':';
            if address.is_empty() || !address.bytes().all(good) {
                return false;
            }
            (None, port)
        }
        None => match domain.split_once(':') {
            Some((host, _)) => (Some(host), &domain[host.len()..]),
            None => (Some(domain), ""),
        },
    };
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let good_port = match port.strip_prefix(':') {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()),
        None => port.is_empty(),
    };
    good_port && host.is_none_or(|host| host.split('.').all(label))
}

/// Runs of lower-case letters and digits, joined by one of `.`, `_`, `__` or any number of `-`.
fn is_path_component(component: &str) -> bool {
    let alnum = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut rest = component.as_bytes();
    loop {
        let run = rest.iter().take_while(|b| alnum(b)).count();
        if run == 0 {
            return false;
        }
        rest = &rest[run..];
        if rest.is_empty() {
            return true;
        }
        let joint = rest.iter().take_while(|b| !alnum(b)).count();
        let good = matches!(&rest[..joint], b"." | b"_" | b"__")
            || rest[..joint].iter().all(|b| *b == b'-');
        if !good {
            return false;
        }
        rest = &rest[joint..];
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let first = tag.bytes().next();
    first.is_some_and(word)
        && tag.len() <= TAG_BYTES_MAX
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(part)
        && hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

fn check_digest(digest: &str) -> Result<(), BadImageName> {
    let (algorithm, hex) = digest.split_once(':').ok_or(BadImageName::Format)?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(BadImageName::DigestAlgorithm),
    };
    if hex.len() != length {
        return Err(BadImageName::DigestLength);
    }
    if hex.bytes().all(is_lower_hex) { Ok(()) } else { Err(BadImageName::DigestFormat) }
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn good_names() {
        fn check(image: &str, repository: &str, tag: &str, digest: bool) {
            let name = ImageName::parse(image).unwrap_or_else(|e| panic!("{image}: {e}"));
            assert_eq!(name.repository, repository, "{image}");
            assert_eq!(name.tag.as_deref().unwrap_or_default(), tag, "{image}");
            assert_eq!(name.digest.is_some(), digest, "{image}");
        }
        check("busybox", "docker.io/library/busybox", "", false);
        check("busybox:1", "docker.io/library/busybox", "1", false);
        check("twin/named:1", "docker.io/twin/named", "1", false);
        check("index.docker.io/busybox", "docker.io/library/busybox", "", false);
        check("registry.k8s.io/pause:3.10", "registry.k8s.io/pause", "3.10", false);
        check("localhost/a", "localhost/a", "", false);
        check("localhost:5000/a/b:v1", "localhost:5000/a/b", "v1", false);
        check("[fd00::1]:5000/a", "[fd00::1]:5000/a", "", false);
        check("a_b.com/x", "a_b.com/x", "", false);
        check("a__b/c---d.e", "docker.io/a__b/c---d.e", "", false);
        check(&format!("a@sha256:{SHA}"), "docker.io/library/a", "", true);
        check(&format!("h.io/a:t@sha256:{SHA}"), "h.io/a", "t", true);
        check("Registry/a", "Registry/a", "", false);
    }

    #[test]
    fn bad_names() {
        fn check(image: &str, want: &str) {
            match ImageName::parse(image) {
                Err(error) => assert_eq!(error.to_string(), want, "{image}"),
                Ok(name) => panic!("{image} was read as {name:?}"),
            }
        }
        check("", "invalid reference format");
        check("a b", "invalid reference format");
        check("a:", "invalid reference format");
        check("a:-t", "invalid reference format");
        check("a//b", "invalid reference format");
        check("a/", "invalid reference format");
        check("a..b", "invalid reference format");
        check("a___b", "invalid reference format");
        check("a-.b", "invalid reference format");
        check("-a", "invalid reference format");
        check("h.io:port/a", "invalid reference format");
        check("a@sha256:12", "invalid reference format");
        check("Bad//Name:1", "invalid reference format: repository name (/Name) must be lowercase");
        check(
            "Busybox",
            "invalid reference format: repository name (library/Busybox) must be lowercase",
        );
        check(&format!("a@md5:{}", &SHA[..32]), "unsupported digest algorithm");
        check(&format!("a@sha256:{}", &SHA[..40]), "invalid checksum digest length");
        check(
            SHA,
            &format!("invalid repository name ({SHA}), cannot specify 64-byte hexadecimal strings"),
        );
        check(
            &"a/".repeat(128).trim_end_matches('/').replace("a/a", "aa/aa"),
            "repository name must not be more than 255 characters",
        );
    }

    #[test]
    fn default_tag_and_policy() {
        fn check(image: &str, full: &str, policy: &str) {
            assert_eq!(with_default_tag(image).as_deref(), Ok(full));
            assert_eq!(default_pull_policy(image), policy, "{image}");
        }
        check("busybox", "docker.io/library/busybox:latest", "Always");
        check("busybox:latest", "busybox:latest", "Always");
        check("busybox:1", "busybox:1", "IfNotPresent");
        let digest = format!("a@sha256:{SHA}");
        check(&digest, &digest, "IfNotPresent");
        assert_eq!(default_pull_policy("Bad//Name"), "IfNotPresent");
        assert_eq!(
            with_default_tag("Bad//Name:1").unwrap_err(),
            "Failed to apply default image tag \"Bad//Name:1\": couldn't parse image name \
             \"Bad//Name:1\": invalid reference format: repository name (/Name) must be lowercase"
        );
    }

    #[test]
    fn users_of_images() {
        let image = |uid: Option<i64>, username: &str| cri::Image {
            uid: uid.map(|value| cri::Int64Value { value }),
            username: username.into(),
            ..cri::Image::default()
        };
        assert_eq!(image_user(&image(Some(7), "")), ImageUser::Uid(7));
        assert_eq!(image_user(&image(None, "nobody")), ImageUser::Name("nobody".into()));
        assert_eq!(image_user(&image(None, "")), ImageUser::Uid(0));
    }
}
