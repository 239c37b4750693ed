"""Selective homomorphic encryption: key holders encrypt updates, and a host without a key adds them.

The scheme is CKKS (Cheon, Kim, Kim, Song 2017, eprint 2016/421), computed by TenSEAL, of the extra `privacy`. Only
`keys` and `cipher` import it. `scheme`, `residues`, `envelope` and `selection` work without it.
"""
