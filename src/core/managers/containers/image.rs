//! Names of images: what is added when something is left out, what is wrong with a bad one, and as
//! whom an image runs.
//!
//! Upstream: pkg/kubelet/images (default tag) and the error texts of distribution/reference, v1.36.
//! The grammar is that of `steplet_api::image`.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use steplet_api::cri;
use steplet_api::image::ImageReference;

const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_INDEX: &str = "index.docker.io";
const DEFAULT_TAG: &str = "latest";
const NAME_BYTES_MAX: usize = 255;

/// The image as it is asked for from the runtime: with the tag `latest` when it has neither tag nor
/// digest. What a short name means is the runtime's affair. The error is the message of a container that waits
/// because of InvalidImageName.
pub fn with_default_tag(image: &str) -> Result<Cow<'_, str>, String> {
    let Some(reference) = ImageReference::parse(image) else {
        return Err(format!(
            "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {}",
            what_is_wrong(image)
        ));
    };
    if reference.tag.is_some() || reference.digest.is_some() {
        return Ok(Cow::Borrowed(image));
    }
    Ok(Cow::Owned(format!("{image}:{DEFAULT_TAG}")))
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

/// The registry, and the rest with `library/` before names of Docker Hub that have one part.
fn split_registry(image: &str) -> (&str, Cow<'_, str>) {
    let is_registry = |first: &str| {
        first.contains(['.', ':']) || first == "localhost" || first.contains(char::is_uppercase)
    };
    let (registry, rest) = match image.split_once('/') {
        Some((DOCKER_HUB_INDEX, rest)) => (DOCKER_HUB, rest),
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (DOCKER_HUB, image),
    };
    if registry == DOCKER_HUB && !rest.contains('/') {
        return (registry, Cow::Owned(format!("library/{rest}")));
    }
    (registry, Cow::Borrowed(rest))
}

/// Why a name is refused, in the words of the reference parser.
fn what_is_wrong(image: &str) -> String {
    if image.len() == 64 && image.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return format!(
            "invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"
        );
    }
    let (_, rest) = split_registry(image);
    let path = rest.split(':').next().unwrap_or_default();
    if path.contains(char::is_uppercase) {
        return format!("invalid reference format: repository name ({path}) must be lowercase");
    }
    if let Some((name, digest)) = image.split_once('@')
        && ImageReference::parse(name).is_some()
        && let Some(text) = what_is_wrong_with_digest(digest)
    {
        return text.into();
    }
    if path.len() > NAME_BYTES_MAX {
        return format!("repository name must not be more than {NAME_BYTES_MAX} characters");
    }
    "invalid reference format".into()
}

/// None for what does not even look like a digest.
fn what_is_wrong_with_digest(digest: &str) -> Option<&'static str> {
    let (algorithm, hex) = digest.split_once(':')?;
    if hex.len() < 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Some("unsupported digest algorithm"),
    };
    Some(match hex.len() == length {
        true => "invalid checksum digest format",
        false => "invalid checksum digest length",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn default_tags() {
        fn check(image: &str, want: &str) {
            assert_eq!(with_default_tag(image).as_deref(), Ok(want));
        }
        check("busybox", "busybox:latest");
        check("twin/named", "twin/named:latest");
        check("docker.io/busybox", "docker.io/busybox:latest");
        check("registry.k8s.io/pause", "registry.k8s.io/pause:latest");
        check("localhost:5000/a/b", "localhost:5000/a/b:latest");
        check("[fd00::1]:5000/a", "[fd00::1]:5000/a:latest");
        check("busybox:1", "busybox:1");
        check("busybox:latest", "busybox:latest");
        let digest = format!("a@sha256:{}", SHA.to_lowercase());
        check(&digest, &digest);
    }

    #[test]
    fn bad_names() {
        fn check(image: &str, want: &str) {
            let error = with_default_tag(image).expect_err(image);
            let head = format!(
                "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: "
            );
            assert_eq!(error.strip_prefix(&*head), Some(want), "{image}");
        }
        const FORMAT: &str = "invalid reference format";
        for image in
            ["", "a b", "a:", "a:-t", "a//b", "a/", "a..b", "-a", "h.io:port/a", "a@sha256:12"]
        {
            check(image, FORMAT);
        }
        check("Bad//Name:1", &format!("{FORMAT}: repository name (/Name) must be lowercase"));
        check("Busybox", &format!("{FORMAT}: repository name (library/Busybox) must be lowercase"));
        check(&format!("a@md5:{}", &SHA[..32]), "unsupported digest algorithm");
        check(&format!("a@sha256:{}", &SHA[..40]), "invalid checksum digest length");
        check(&format!("a@sha256:{SHA}"), "invalid checksum digest format");
        let id = SHA.to_lowercase();
        let text =
            format!("invalid repository name ({id}), cannot specify 64-byte hexadecimal strings");
        check(&id, &text);
        check(&"a".repeat(256), "repository name must not be more than 255 characters");
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
