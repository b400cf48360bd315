"""The channels of a local run: which objects each contains, and how they reach a host, in one module per way.

A module per way has one context manager, `provide(delivery)`: on entering, the channel is below its host's `input/data`, or is a
mount that it yields for the runner; on leaving, everything it made (files, mount, FIFO, process, thread) is gone. The cards of the
storage kinds name the modules (`PROVIDERS`).
"""
