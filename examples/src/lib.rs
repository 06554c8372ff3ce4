//! Flows to read and to run. The binaries talk to a person; what tests share with them is here.

pub mod hotel;
