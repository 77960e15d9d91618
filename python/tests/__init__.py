import logging

# Test cases on asyncio run in its debug mode, which logs steps that block the event loop.
logging.getLogger("asyncio").setLevel(logging.ERROR)
