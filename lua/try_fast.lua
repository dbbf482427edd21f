-- Stands before the rest of acquire: free locks. To define the functions below, and to call
-- them for each lock, would cost more than this. A lock that fails here is left to the functions
-- below, and fails there in the same way.
local call, replies, left = redis.pcall, {}, false
for i, key in ipairs(KEYS) do
    if call('pttl', key) == -2 and call('hset', key, ARGV[2 * i], '1') == 1 then
        if call('pexpire', key, ARGV[2 * i - 1]) == 1 then
            replies[i] = 1
        else
            call('del', key)
        end
    end
    left = left or not replies[i]
end
if not left then
    return #replies == 1 and 1 or replies
end
