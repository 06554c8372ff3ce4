//! A generic flow is checked as any other.

use flow_core::prelude::*;

use std::marker::PhantomData;

trait Db: Clone + Send + Sync + 'static {}

#[flow(steps(Talk<D>))]
#[derive(Clone)]
struct Hotel<D: Db>(D);

#[step(reply, next(Bye<D>))]
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "")]
struct Talk<D: Db>(PhantomData<D>);

#[step(reply, next(end))]
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "")]
struct Bye<D: Db>(PhantomData<D>);

impl<D: Db> Default for Talk<D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<D: Db> Reply for Talk<D> {
    type Flow = Hotel<D>;
}

impl<D: Db> Default for Bye<D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<D: Db> Reply for Bye<D> {
    type Flow = Hotel<D>;
}

fn main() {}
