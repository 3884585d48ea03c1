//! The parts of a `KubeletConfiguration` that are records themselves.

use super::duration::GoDuration;
use super::record::{Field, Reader, record};
use crate::quantity::Quantity;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Number, Value};

record! {
    pub struct KubeletAuthentication {
        "x509" x509: KubeletX509Authentication,
        "webhook" webhook: KubeletWebhookAuthentication,
        "anonymous" anonymous: KubeletAnonymousAuthentication,
    }

    pub struct KubeletX509Authentication {
        "clientCAFile" client_ca_file: String,
    }

    pub struct KubeletWebhookAuthentication {
        "enabled" enabled: bool = nil(true),
        "cacheTTL" cache_ttl: GoDuration = zero(GoDuration::from_secs(120)),
    }

    pub struct KubeletAnonymousAuthentication {
        "enabled" enabled: bool = nil(false),
    }

    pub struct KubeletAuthorization {
        /// `Webhook` or `AlwaysAllow`.
        "mode" mode: String = zero("Webhook".into()),
        "webhook" webhook: KubeletWebhookAuthorization,
    }

    pub struct KubeletWebhookAuthorization {
        "cacheAuthorizedTTL" cache_authorized_ttl: GoDuration = zero(GoDuration::from_secs(300)),
        "cacheUnauthorizedTTL" cache_unauthorized_ttl: GoDuration = zero(GoDuration::from_secs(30)),
    }

    pub struct MemorySwapConfiguration {
        /// Empty is `NoSwap`.
        "swapBehavior" swap_behavior: String,
    }

    pub struct CrashLoopBackOffConfig {
        /// None only when the gate KubeletCrashLoopBackOffMax is off.
        "maxContainerRestartPeriod" max_container_restart_period: Option<GoDuration>
            = absent(Some(GoDuration::from_secs(300))),
    }

    pub struct UserNamespaces {
        /// None: 65536.
        "idsPerPod" ids_per_pod: Option<i64>,
    }

    pub struct ShutdownGracePeriodByPodPriority {
        "priority" priority: i32 = keep(0),
        "shutdownGracePeriodSeconds" shutdown_grace_period_seconds: i64 = keep(0),
    }

    pub struct MemoryReservation {
        "numaNode" numa_node: i32 = keep(0),
        "limits" limits: BTreeMap<String, Quantity> = keep(BTreeMap::new()),
    }

    /// `v1.Taint`, for registration.
    pub struct Taint {
        "key" key: String = keep(String::new()),
        "value" value: String,
        "effect" effect: String = keep(String::new()),
        "timeAdded" time_added: Option<String>,
    }

    pub struct TracingConfiguration {
        "endpoint" endpoint: Option<String>,
        "samplingRatePerMillion" sampling_rate_per_million: Option<i32>,
    }

    pub struct LoggingConfiguration {
        /// `text` or `json`.
        "format" format: String = zero("text".into()),
        "flushFrequency" flush_frequency: FlushFrequency = keep(FlushFrequency::default()),
        "verbosity" verbosity: u32 = keep(0),
        "vmodule" vmodule: Vec<VModuleItem>,
        "options" options: FormatOptions,
    }

    pub struct VModuleItem {
        "filePattern" file_pattern: String = keep(String::new()),
        "verbosity" verbosity: u32 = keep(0),
    }

    pub struct FormatOptions {
        "text" text: OutputRoutingOptions,
        "json" json: OutputRoutingOptions,
    }

    pub struct OutputRoutingOptions {
        "splitStream" split_stream: bool,
        /// Bytes.
        "infoBufferSize" info_buffer_size: Quantity = keep(Quantity::default()),
    }
}

/// `logging.flushFrequency`: a duration, or nanoseconds as a number, and written as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushFrequency {
    pub every: GoDuration,
    as_text: bool,
}

impl Default for FlushFrequency {
    fn default() -> Self {
        FlushFrequency { every: GoDuration::from_secs(5), as_text: true }
    }
}

impl Field for FlushFrequency {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        self.as_text = !value.is_number();
        match value {
            Value::Number(_) => self.every.ns.read(value, reader),
            // Unlike other durations this one takes null, as zero.
            Value::Null => self.every = GoDuration::default(),
            _ => self.every.read(value, reader),
        }
        if reader.zero_is_unset && self.every.ns == 0 {
            *self = FlushFrequency::default();
        }
    }
    fn write(&self) -> Value {
        match self.as_text {
            true => self.every.write(),
            false => Value::Number(Number::from(self.every.ns)),
        }
    }
    fn omitted(&self) -> bool {
        false
    }
}

/// A share such as 0.9, without binary fractions.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    written: Number,
    /// 1,000,000,000 is all.
    pub billionths: i128,
}

impl Default for Factor {
    /// Of memoryThrottlingFactor.
    fn default() -> Self {
        let written = serde_json::from_str("0.9").expect("0.9 is a number");
        Factor { written, billionths: 900_000_000 }
    }
}

impl Field for Factor {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        let Value::Number(number) = value else {
            return reader.mistyped("a number", value);
        };
        // The decimal reader of quantities is exact where a float is not.
        match Quantity::parse(&number.to_string()) {
            Ok(quantity) if quantity.nanos() % 1_000_000_000 == 0 => {
                *self = Factor {
                    written: Number::from(quantity.value()),
                    billionths: quantity.nanos(),
                };
            }
            Ok(quantity) => {
                *self = Factor { written: number.clone(), billionths: quantity.nanos() };
            }
            Err(_) => reader.mistyped("a number", value),
        }
    }
    fn write(&self) -> Value {
        Value::Number(self.written.clone())
    }
    fn omitted(&self) -> bool {
        false
    }
}
