//! Images by reference. Every image can be pulled unless its repository begins with `missing/`.

use super::answers::error;
use super::{Out, Runtime};
use crate::trace::Fact;
use std::collections::BTreeMap;
use steplet_api::cri;
use steplet_core::event::RpcError;
use steplet_core::time::Wall;

#[derive(Debug, Default)]
pub struct Images {
    /// By id.
    images: BTreeMap<String, cri::Image>,
}

/// The reference as Docker's tools complete it: registry, library and tag.
fn canonical(reference: &str) -> String {
    let (first, rest) = reference.split_once('/').unwrap_or(("", reference));
    let has_host = first.contains(['.', ':']) || first == "localhost";
    let mut name = match (has_host, first.is_empty()) {
        (true, _) => reference.to_owned(),
        (false, true) => format!("docker.io/library/{rest}"),
        (false, false) => format!("docker.io/{reference}"),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    if !last.contains([':', '@']) {
        name.push_str(":latest");
    }
    name
}

/// 64 hexadecimal digits that depend on the text alone.
fn digest(text: &str) -> String {
    let mut out = String::new();
    for salt in 0..4_u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ salt.wrapping_mul(0x9e37_79b9);
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        out.push_str(&format!("{hash:016x}"));
    }
    out
}

impl Runtime {
    /// Somebody brings an image without being asked.
    pub fn load_image(&mut self, reference: &str, out: &mut Out) {
        // There is nothing to load of an image that does not exist.
        let _ = self.images.pull(reference, out);
    }
}

impl Images {
    pub fn pull(&mut self, reference: &str, out: &mut Out) -> Result<String, RpcError> {
        let tag = canonical(reference);
        if reference.starts_with("missing/") {
            let message = format!(
                "failed to pull and unpack image {tag:?}: failed to resolve reference {tag:?}: {tag}: not found"
            );
            return Err(error(RpcError::NOT_FOUND, message));
        }
        let id = format!("sha256:{}", digest(&tag));
        let repository = tag.rsplit_once(':').map_or(tag.as_str(), |(repository, _)| repository);
        let image = cri::Image {
            id: id.clone(),
            repo_digests: vec![format!("{repository}@{id}")],
            size: 4 << 20,
            repo_tags: vec![tag],
            ..Default::default()
        };
        self.images.insert(id.clone(), image);
        out.facts.push(Fact::ImagePulled { image: reference.to_owned() });
        Ok(id)
    }

    /// By id, tag or digest.
    pub fn find(&self, reference: &str) -> Option<&cri::Image> {
        if let Some(image) = self.images.get(reference) {
            return Some(image);
        }
        let name = canonical(reference);
        (self.images.values())
            .find(|image| image.repo_tags.contains(&name) || image.repo_digests.contains(&name))
    }

    pub fn list(&self, request: &cri::ListImagesRequest) -> cri::ListImagesResponse {
        let wanted = request.filter.as_ref().and_then(|filter| filter.image.as_ref());
        let wanted = wanted.map(|spec| spec.image.as_str()).filter(|name| !name.is_empty());
        let images = match wanted {
            Some(name) => self.find(name).cloned().into_iter().collect(),
            None => self.images.values().cloned().collect(),
        };
        cri::ListImagesResponse { images }
    }

    pub fn remove(&mut self, reference: &str) {
        if let Some(id) = self.find(reference).map(|image| image.id.clone()) {
            self.images.remove(&id);
        }
    }

    pub fn filesystem(&self, wall: Wall) -> cri::ImageFsInfoResponse {
        let used = self.images.values().map(|image| image.size).sum();
        let usage = cri::FilesystemUsage {
            timestamp: wall.0,
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: "/var/lib/containerd".into() }),
            used_bytes: Some(cri::UInt64Value { value: used }),
            inodes_used: Some(cri::UInt64Value { value: 100 }),
        };
        cri::ImageFsInfoResponse { image_filesystems: vec![usage], ..Default::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_completed_as_dockers_tools_do() {
        for (short, want) in [
            ("app", "docker.io/library/app:latest"),
            ("app:v1", "docker.io/library/app:v1"),
            ("team/app", "docker.io/team/app:latest"),
            ("localhost/app:v1", "localhost/app:v1"),
            ("reg.example:5000/app", "reg.example:5000/app:latest"),
        ] {
            assert_eq!(canonical(short), want);
        }
    }

    #[test]
    fn a_pulled_image_is_found_by_tag_id_and_digest() {
        let mut images = Images::default();
        let id = images.pull("app:v1", &mut Out::default()).expect("there is such an image");
        for reference in ["app:v1", "docker.io/library/app:v1", id.as_str()] {
            assert_eq!(images.find(reference).map(|i| &i.id), Some(&id), "{reference}");
        }
        assert!(images.find("app:v2").is_none());
        assert!(images.pull("missing/app", &mut Out::default()).is_err());
    }
}
