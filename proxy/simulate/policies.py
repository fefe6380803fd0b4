"""The policies by name, each with what it remembers of what it sent where."""

from __future__ import annotations

from functools import partial

from prefold.proxy.routing import Policy, Weights
from prefold.proxy.simulate import peers
from prefold.proxy.simulate.engine import BlockCache, EngineShape
from prefold.proxy.simulate.peer import (
    Choose,
    Memory,
    Peer,
    as_the_engine,
    everything,
    no_memory,
)
from prefold.proxy.simulate.preble import Preble
from prefold.proxy.simulate.product import Product
from prefold.proxy.simulate.router import Fleet, Router, RouterFactory


def sglang_tree(engine: EngineShape) -> BlockCache:
    """2^26 characters of each worker, whatever the worker's own size."""
    return BlockCache(2**26 // 4 // engine.block_tokens)


def _peer(choose: Choose, memory: Memory, fleet: Fleet, seed: int) -> Router:
    return Peer(fleet, seed, choose, memory)


def _preble(fleet: Fleet, seed: int) -> Router:
    return Peer(fleet, seed, Preble(), as_the_engine)


def _product(fleet: Fleet, seed: int) -> Router:
    return Product(fleet, Policy.PREFIX, Weights())


POLICIES: dict[str, RouterFactory] = {
    "random": partial(_peer, peers.random_choice, no_memory),
    "round_robin": partial(_peer, peers.round_robin, no_memory),
    "least_load": partial(_peer, peers.least_load, no_memory),
    "rendezvous": partial(_peer, peers.rendezvous, no_memory),
    "kubeai": partial(_peer, peers.kubeai, no_memory),
    "sglang": partial(_peer, peers.sglang, sglang_tree),
    "sglang_spill": partial(_peer, peers.sglang_spill, sglang_tree),
    "production_stack": partial(_peer, peers.production_stack, everything),
    # These know the engines' caches by events, or are told their sizes.
    "production_stack_load": partial(_peer, peers.production_stack_load, as_the_engine),
    "llm_d": partial(_peer, peers.llm_d, as_the_engine),
    "dynamo": partial(_peer, peers.dynamo, as_the_engine),
    "preble": _preble,
    "prefold": _product,
}
