import logging

# Test cases on asyncio run in its debug mode, which tells of every step that takes long.
logging.getLogger("asyncio").setLevel(logging.ERROR)
