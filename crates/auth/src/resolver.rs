//! Where snow gets its primitives from: all of them from the crate `ring`.

use std::sync::Mutex;

use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::SystemRandom;
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};

/// Length of an X25519 key.
const KEY_BYTES: usize = 32;

/// snow's resolver for ring, and ring's X25519, which that one lacks.
pub(crate) struct Resolver;

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        RingResolver.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(EphemeralX25519::default())),
            _ => None,
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// A key pair for one agreement. ring lets nobody see or import the private key, and takes it for
/// the agreement. The pattern NN needs no more: it has no static keys and one `ee`.
#[derive(Default)]
struct EphemeralX25519 {
    private: Mutex<Option<EphemeralPrivateKey>>,
    public: [u8; KEY_BYTES],
}

impl Dh for EphemeralX25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    fn set(&mut self, _private: &[u8]) {
        unreachable!("the handshake imports no private key");
    }

    fn generate(&mut self, _rng: &mut dyn Random) -> Result<(), Error> {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new());
        let private = private.map_err(|_| Error::Rng)?;
        let public = private.compute_public_key().map_err(|_| Error::Rng)?;
        self.public.copy_from_slice(public.as_ref());
        self.private = Mutex::new(Some(private));
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        unreachable!("the handshake exports no private key");
    }

    /// Error: there is no private key any more, or the peer's point is of low order, so that the
    /// secret would be zero.
    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let private = self.private.lock().map_err(|_| Error::Dh)?.take();
        let private = private.ok_or(Error::Dh)?;
        let public = UnparsedPublicKey::new(&X25519, &public[..KEY_BYTES]);
        let copy = |secret: &[u8]| out[..KEY_BYTES].copy_from_slice(secret);
        agree_ephemeral(private, &public, copy).map_err(|_| Error::Dh)
    }
}
