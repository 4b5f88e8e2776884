//! Log lines to standard error, as text or JSON.

use std::io;

use tracing_subscriber::{
    EnvFilter, Layer as _, filter::LevelFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::config::{LogConfig, LogFormat};

/// Reads a level or a list of levels. A single word must be a level: the
/// filter would take any other for the name of a module, and log nothing else.
pub(crate) fn filter(level: &str) -> Option<EnvFilter> {
    let known = |word: &str| word.contains('=') || word.parse::<LevelFilter>().is_ok();
    if !level.split(',').map(str::trim).all(known) {
        return None;
    }
    EnvFilter::builder().parse(level).ok()
}

/// Starts logging; called once. A level that can't be read has been refused
/// with the configuration.
pub(crate) fn start(config: &LogConfig) {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let filter = filter(&config.level).unwrap_or_else(|| EnvFilter::new("info"));
    // Fails only where a test started it already.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
}
