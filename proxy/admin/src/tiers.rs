//! `tidegate_store_bytes` and `tidegate_store_evictions_total`, read from the
//! store when somebody asks.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use crate::TierStatus;

/// Shows the store's tiers; register it as a collector.
pub struct Tiers {
    read: Box<dyn Fn() -> Vec<TierStatus> + Send + Sync>,
}

impl Tiers {
    /// Shows what `read` returns at the time.
    pub fn new(read: impl Fn() -> Vec<TierStatus> + Send + Sync + 'static) -> Self {
        Self { read: Box::new(read) }
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tiers")
    }
}

impl Collector for Tiers {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let tiers = (self.read)();
        let mut bytes =
            encoder.encode_descriptor("store_bytes", "Bytes held in a tier", None, MetricType::Gauge)?;
        for tier in &tiers {
            let value = i64::try_from(tier.bytes).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(bytes.encode_family(&[("tier", tier.tier)])?)?;
        }
        let mut evictions = encoder.encode_descriptor(
            "store_evictions",
            "Entries evicted from a tier",
            None,
            MetricType::Counter,
        )?;
        for tier in &tiers {
            ConstCounter::new(tier.evictions).encode(evictions.encode_family(&[("tier", tier.tier)])?)?;
        }
        Ok(())
    }
}
