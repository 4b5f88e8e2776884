//! Log lines to standard error, as text or JSON.

use std::io;

use tracing_subscriber::{
    EnvFilter, Layer as _, filter::ParseError, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::config::{LogConfig, LogFormat};

/// Reads a level or a list of levels.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(level)
}

/// Starts logging; called once. A level that can't be read has been refused
/// with the configuration.
pub(crate) fn start(config: &LogConfig) {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let filter = filter(&config.level).unwrap_or_else(|_| EnvFilter::new("info"));
    // Fails only where a test started it already.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
}
