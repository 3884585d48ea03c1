//! Volume of core/v1, release 1.36. The sources that a kubelet makes itself or hands to CSI are
//! typed; those of removed or remote in-tree plugins are kept as they came, by name.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::de::MapAccess;
use serde::ser::SerializeMap;
use serde_json::Value;

use crate::container::{ObjectFieldSelector, ResourceFieldSelector};
use crate::json::{self, Object, object, object_codec};
use crate::meta::{LabelSelector, ObjectMeta};
use crate::pod::LocalObjectReference;
use crate::quantity::Quantity;

/// A named volume of a pod. At most one source is set; none means an emptyDir.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Volume {
    pub name: Box<str>,
    pub host_path: Option<Box<HostPathVolumeSource>>,
    pub empty_dir: Option<Box<EmptyDirVolumeSource>>,
    pub secret: Option<Box<SecretVolumeSource>>,
    pub config_map: Option<Box<ConfigMapVolumeSource>>,
    pub downward_api: Option<Box<DownwardApiVolumeSource>>,
    pub projected: Option<Box<ProjectedVolumeSource>>,
    pub persistent_volume_claim: Option<Box<PersistentVolumeClaimVolumeSource>>,
    pub csi: Option<Box<CsiVolumeSource>>,
    pub ephemeral: Option<Box<EphemeralVolumeSource>>,
    pub image: Option<Box<ImageVolumeSource>>,
    /// Sources of `OTHER_SOURCES` that are set, by name on the wire.
    pub others: BTreeMap<&'static str, Value>,
}

/// Volume sources that are known by name only: in-tree plugins that were removed, moved to CSI or
/// mount from remote.
pub const OTHER_SOURCES: [&str; 20] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

impl Volume {
    /// The names of the sources that are set, the typed ones first.
    pub fn sources(&self) -> impl Iterator<Item = &'static str> {
        let typed = [
            ("emptyDir", self.empty_dir.is_some()),
            ("hostPath", self.host_path.is_some()),
            ("secret", self.secret.is_some()),
            ("configMap", self.config_map.is_some()),
            ("downwardAPI", self.downward_api.is_some()),
            ("projected", self.projected.is_some()),
            ("persistentVolumeClaim", self.persistent_volume_claim.is_some()),
            ("csi", self.csi.is_some()),
            ("ephemeral", self.ephemeral.is_some()),
            ("image", self.image.is_some()),
        ];
        let typed = typed.into_iter().filter(|(_, set)| *set).map(|(name, _)| name);
        typed.chain(self.others.keys().copied())
    }
}

impl Object for Volume {
    const NAME: &'static str = "Volume";

    fn read_field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match key {
            "name" => self.name = json::read(key, map)?,
            "hostPath" => self.host_path = json::read(key, map)?,
            "emptyDir" => self.empty_dir = json::read(key, map)?,
            "secret" => self.secret = json::read(key, map)?,
            "configMap" => self.config_map = json::read(key, map)?,
            "downwardAPI" => self.downward_api = json::read(key, map)?,
            "projected" => self.projected = json::read(key, map)?,
            "persistentVolumeClaim" => self.persistent_volume_claim = json::read(key, map)?,
            "csi" => self.csi = json::read(key, map)?,
            "ephemeral" => self.ephemeral = json::read(key, map)?,
            "image" => self.image = json::read(key, map)?,
            _ => match OTHER_SOURCES.binary_search(&key) {
                Ok(at) => match json::read(key, map)? {
                    Value::Null => _ = self.others.remove(OTHER_SOURCES[at]),
                    source => _ = self.others.insert(OTHER_SOURCES[at], source),
                },
                Err(_) => json::skip(map)?,
            },
        }
        Ok(())
    }

    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("name", &self.name)?;
        json::write("hostPath", &self.host_path, map)?;
        json::write("emptyDir", &self.empty_dir, map)?;
        json::write("secret", &self.secret, map)?;
        json::write("configMap", &self.config_map, map)?;
        json::write("downwardAPI", &self.downward_api, map)?;
        json::write("projected", &self.projected, map)?;
        json::write("persistentVolumeClaim", &self.persistent_volume_claim, map)?;
        json::write("csi", &self.csi, map)?;
        json::write("ephemeral", &self.ephemeral, map)?;
        json::write("image", &self.image, map)?;
        self.others.iter().try_for_each(|(name, source)| map.serialize_entry(name, source))
    }
}

object_codec!(Volume);

object! {
    /// A directory or file of the node. `type` says what must be there, or be made; empty checks
    /// nothing.
    pub struct HostPathVolumeSource {
        "type" type_: Option<Box<str>>,
    } always {
        "path" path: Box<str>,
    }

    /// An empty directory that lives as long as the pod. `medium` is empty (disk), Memory,
    /// HugePages or HugePages-SIZE.
    pub struct EmptyDirVolumeSource {
        "medium" medium: Box<str>,
        "sizeLimit" size_limit: Option<Quantity>,
    }

    pub struct SecretVolumeSource {
        "secretName" secret_name: Box<str>,
        "items" items: Vec<KeyToPath>,
        "defaultMode" default_mode: Option<i32>,
        "optional" optional: Option<bool>,
    }

    pub struct ConfigMapVolumeSource {
        "name" name: Box<str>,
        "items" items: Vec<KeyToPath>,
        "defaultMode" default_mode: Option<i32>,
        "optional" optional: Option<bool>,
    }

    /// A key of an object and the file, relative to the volume, that it becomes.
    pub struct KeyToPath {
        "mode" mode: Option<i32>,
    } always {
        "key" key: Box<str>,
        "path" path: Box<str>,
    }

    pub struct DownwardApiVolumeSource {
        "items" items: Vec<DownwardApiVolumeFile>,
        "defaultMode" default_mode: Option<i32>,
    }

    /// A file with a field of the pod or a resource of one of its containers.
    pub struct DownwardApiVolumeFile {
        "fieldRef" field_ref: Option<ObjectFieldSelector>,
        "resourceFieldRef" resource_field_ref: Option<ResourceFieldSelector>,
        "mode" mode: Option<i32>,
    } always {
        "path" path: Box<str>,
    }

    /// Several sources in one directory.
    pub struct ProjectedVolumeSource {
        "sources" sources: Vec<VolumeProjection>,
        "defaultMode" default_mode: Option<i32>,
    }

    /// One source of a projected volume; exactly one field is set.
    pub struct VolumeProjection {
        "secret" secret: Option<Box<ObjectProjection>>,
        "downwardAPI" downward_api: Option<Box<DownwardApiProjection>>,
        "configMap" config_map: Option<Box<ObjectProjection>>,
        "serviceAccountToken" service_account_token: Option<Box<ServiceAccountTokenProjection>>,
        "clusterTrustBundle" cluster_trust_bundle: Option<Box<ClusterTrustBundleProjection>>,
        "podCertificate" pod_certificate: Option<Box<PodCertificateProjection>>,
    }

    /// SecretProjection and ConfigMapProjection.
    pub struct ObjectProjection {
        "name" name: Box<str>,
        "items" items: Vec<KeyToPath>,
        "optional" optional: Option<bool>,
    }

    pub struct DownwardApiProjection {
        "items" items: Vec<DownwardApiVolumeFile>,
    }

    pub struct ServiceAccountTokenProjection {
        "audience" audience: Box<str>,
        "expirationSeconds" expiration_seconds: Option<i64>,
    } always {
        "path" path: Box<str>,
    }

    /// Certificates of one bundle by name, or of all bundles of a signer that the selector takes.
    pub struct ClusterTrustBundleProjection {
        "name" name: Option<Box<str>>,
        "signerName" signer_name: Option<Box<str>>,
        "labelSelector" label_selector: Option<LabelSelector>,
        "optional" optional: Option<bool>,
    } always {
        "path" path: Box<str>,
    }

    pub struct PodCertificateProjection {
        "signerName" signer_name: Box<str>,
        "keyType" key_type: Box<str>,
        "maxExpirationSeconds" max_expiration_seconds: Option<i32>,
        "credentialBundlePath" credential_bundle_path: Box<str>,
        "keyPath" key_path: Box<str>,
        "certificateChainPath" certificate_chain_path: Box<str>,
        "userAnnotations" user_annotations: BTreeMap<Box<str>, Box<str>>,
    }

    pub struct PersistentVolumeClaimVolumeSource {
        "readOnly" read_only: bool,
    } always {
        "claimName" claim_name: Box<str>,
    }

    /// A volume that a CSI driver makes for this pod alone.
    pub struct CsiVolumeSource {
        "readOnly" read_only: Option<bool>,
        "fsType" fs_type: Option<Box<str>>,
        "volumeAttributes" volume_attributes: BTreeMap<Box<str>, Box<str>>,
        "nodePublishSecretRef" node_publish_secret_ref: Option<LocalObjectReference>,
    } always {
        "driver" driver: Box<str>,
    }

    /// A claim that is made and removed with the pod, named `POD-VOLUME`.
    pub struct EphemeralVolumeSource {
        "volumeClaimTemplate" volume_claim_template: Option<PersistentVolumeClaimTemplate>,
    }

    pub struct PersistentVolumeClaimTemplate {
        "metadata" metadata: ObjectMeta,
        "spec" spec: Value,
    }

    /// The files of an image or artifact, read-only.
    pub struct ImageVolumeSource {
        "reference" reference: Box<str>,
        "pullPolicy" pull_policy: Box<str>,
    }
}

/// Values of `HostPathVolumeSource.type_`.
pub mod host_path_type {
    pub const UNSET: &str = "";
    pub const DIRECTORY_OR_CREATE: &str = "DirectoryOrCreate";
    pub const DIRECTORY: &str = "Directory";
    pub const FILE_OR_CREATE: &str = "FileOrCreate";
    pub const FILE: &str = "File";
    pub const SOCKET: &str = "Socket";
    pub const CHAR_DEVICE: &str = "CharDevice";
    pub const BLOCK_DEVICE: &str = "BlockDevice";
}

/// Values of `EmptyDirVolumeSource.medium`; a page size may follow `HUGE_PAGES` after a dash.
pub mod medium {
    pub const DEFAULT: &str = "";
    pub const MEMORY: &str = "Memory";
    pub const HUGE_PAGES: &str = "HugePages";
}
