"""What each field of each manifest does: works, works in part, no effect, or refused.

The tables are the one source: `apply` and `submit` take their warnings and refusals from them, and
``docs/manifests.md`` is made from them (`tools.pages.fields`). A field that starts to work changes
its line here, and nothing else.
"""
