"""Families of concurrent admission, as values: who a parent's variants are, and who may try when.

Pure, and asked by everybody who acts on it: whoever creates and switches variants, whoever reserves
quota for them, whoever writes them. So policy and act cannot differ. Source: LIFECYCLE 4, KEP-8691.
"""
