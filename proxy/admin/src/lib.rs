//! Room: admin.
