//! The appliance.
fn main() {}
